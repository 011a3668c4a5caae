"""What the end-to-end story is played with: a terminal, a command that waits, and a model whose
replies are chosen by the message that they answer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.apps.tui.harness import make_editor, write_file
from tests.apps.tui.test_prompt_keys import PNG
from tests.apps.tui.tmux import Terminal
from tests.patience import until_in_thread
from treadle.apps.tui.render.palette import THEMES
from treadle.testing.provider.answers import ProviderFault
from treadle.testing.provider.http import ReceivedRequest
from treadle.testing.provider.script import FakeCall, FakeReply
from treadle.testing.provider.server import ProviderServer

LONG = "And then there was more to say about it. " * 200
CODE = "print('code')\n"
SHOWN = f"See https://example.org/guide for more:\n\n```python\n{CODE}```\n\nThat is all of it."
PLAN = "# Rename it\n\n1. Change `a.py`\n2. Run the tests"


def bash(command: str) -> FakeCall:
    return FakeCall("bash", {"command": command})


def write(path: str, content: str) -> FakeCall:
    return FakeCall("write", {"file_path": path, "content": content})


def edit(old: str, new: str) -> FakeCall:
    return FakeCall("edit", {"file_path": "notes.txt", "old_string": old, "new_string": new})


def call(*calls: FakeCall, text: str = "") -> FakeReply:
    return FakeReply(text, calls=calls)


PRESENT = call(FakeCall("present_plan", {"plan": PLAN}))
SCOUT: dict[str, object] = {
    "description": "look around",
    "prompt": "scout the folder",
    "name": "scout",
}
REVIEW: dict[str, object] = {
    "description": "review it",
    "prompt": "judge the change",
    "subagent_type": "review",
}
NOTES = "".join(f"line {number}\n" for number in range(1, 41))

REPLIES: dict[str, list[FakeReply]] = {
    "write the notes": [call(write("notes.txt", NOTES)), FakeReply("The notes are written.")],
    "correct them": [
        call(edit("a line that is not there", "x")),
        call(edit("line 20\n", "twenty\n")),
        call(edit("line 30\n", "thirty\n")),
        FakeReply("The notes are corrected."),
    ],
    "publish it": [
        call(bash("git push --force origin main"), bash("rm -rf build"), bash("touch made.txt")),
        FakeReply("One of three is done."),
    ],
    "show me": [
        FakeReply(thinking="First I think about it.", calls=(bash("./hold show"),)),
        FakeReply(SHOWN),
    ],
    "print a lot": [call(bash("./hold flood")), FakeReply("The flood is over.")],
    "work on it": [call(bash("./hold work")), FakeReply("I heard what you said.")],
    "work again": [call(bash("./hold again"))],
    "plan it": [PRESENT, PRESENT, call(write("a.py", "x = 1\n")), FakeReply("It is renamed.")],
    "what is next": [FakeReply("The next step is to run the tests.")],
    "send a scout": [call(FakeCall("task", SCOUT)), FakeReply("The scout has come home.")],
    "scout the folder": [
        call(bash("./hold scout"), text="I look into it."),
        call(bash("./hold never"), text="I hurry."),
    ],
    "Start one agent of the kind `review`": [
        call(FakeCall("task", REVIEW)),
        FakeReply("One finding: a.py:1."),
    ],
    "judge the change": [FakeReply("a.py:1: it is wrong")],
    "Look around in this project": [
        call(write("AGENTS.md", "Use make.\n")),
        FakeReply("Project notes are written."),
    ],
    "talk": [FakeReply("I begin to talk. " + LONG)],
    "go on": [FakeReply("I go on where I was.")],
    "clean up": [call(bash("touch cleaned.txt"))],
    "fix": [call(bash("touch fixed.txt"), text="I fix it."), FakeReply("It is fixed.")],
}
ASIDE = FakeReply("Aside: all is **well**.")
SUMMARY = FakeReply("A summary of the work.")


class StoryModel:
    """Answers the last message that the story knows, with the next of its replies."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()

    def __call__(self, request: ReceivedRequest) -> FakeReply:
        texts = list_texts(request)
        if "side question" in texts[-1]:
            return ASIDE
        for text in reversed(texts):
            for known, replies in REPLIES.items():
                if text.startswith(known):
                    place = self._used[known]
                    self._used[known] += 1
                    return replies[min(place, len(replies) - 1)]
        return SUMMARY


def list_texts(request: ReceivedRequest) -> list[str]:
    """What the user said, oldest first."""
    messages: Any = request.json["messages"]
    texts = []
    for message in messages:
        content = message["content"] if message["role"] == "user" else []
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts += [part["text"] for part in parts if part["type"] == "text"]
    return texts or [""]


GIVEN = ("--model=claude-sonnet-4-5", "--sandbox=off")
HOLD = """#!/bin/sh
[ "$1" = flood ] && yes flood | head -n 300000
for n in 1 2 3 4 5 6; do echo out $n; done
until [ -e "$1" ]; do sleep 0.05; done
"""
SMALL = (40, 15)


class Story:
    """The terminal, its size, and the server that plays the model."""

    def __init__(self, terminal: Terminal, size: tuple[int, int], server: ProviderServer) -> None:
        self.on = terminal
        self.size = size
        self.server = server
        self.output = Path.home() / "output"
        write_file("hold", HOLD)
        Path("hold").chmod(0o755)
        Path("plan.png").write_bytes(PNG)
        make_editor("editor", "printf ' the notes' >> $1")
        self.env = {
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": server.url,
            "EDITOR": str(Path.home() / "editor"),
            "COLORTERM": "truecolor",
        }
        terminal.set("window-style", "bg=#ffffff")
        terminal.set("set-clipboard", "on")
        terminal.record(self.output)

    def run(self, *given: str) -> None:
        self.on.run(*given, env=self.env)

    def wrote(self, text: str) -> None:
        """Wait until a program has written this into the terminal, as an escape sequence."""
        until_in_thread(lambda: text.encode() in self.output.read_bytes())

    def shows_color(self, sequence: str) -> None:
        until_in_thread(lambda: sequence in self.on.colored_screen())

    def shake(self, text: str) -> None:
        """Resize while a dialog is open: it stays."""
        self.on.resize(*SMALL)
        self.on.sees(text)
        self.on.resize(*self.size)
        self.on.sees(text)

    def slow_down_next_reply(self) -> None:
        number = len(self.server.generation_requests)
        self.server.faults[:] = [ProviderFault("paced", at=number, times=1, seconds=0.02)]

    def end(self, code: int) -> None:
        self.on.sees(f"ended with {code}")
        self.on.renew()


def to_sequence(theme: str) -> str:
    """The colour of faint text, as a terminal gets it."""
    color = THEMES[theme].faint.color
    assert color is not None
    return ";".join(str(part) for part in color.get_truecolor())
