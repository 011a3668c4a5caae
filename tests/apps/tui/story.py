"""What the model says in the end-to-end story: replies by the message that they answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

from treadle.testing.provider.http import ReceivedRequest
from treadle.testing.provider.script import FakeCall, FakeReply

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
SCOUT = {"description": "look around", "prompt": "scout the folder", "name": "scout"}
REVIEW = {"description": "review it", "prompt": "judge the change", "subagent_type": "review"}
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
    "Start one agent of the kind `review`": [call(FakeCall("task", REVIEW)), FakeReply("One finding: a.py:1.")],
    "judge the change": [FakeReply("a.py:1: it is wrong")],
    "Look around in this project": [call(write("AGENTS.md", "Use make.\n")), FakeReply("Project notes are written.")],
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
        texts = list_texts(request.json["messages"])
        if "side question" in texts[-1]:
            return ASIDE
        for text in reversed(texts):
            for known, replies in REPLIES.items():
                if text.startswith(known):
                    place = self._used[known]
                    self._used[known] += 1
                    return replies[min(place, len(replies) - 1)]
        return SUMMARY


def list_texts(messages: list[Any]) -> list[str]:
    """What the user said, oldest first."""
    texts = []
    for message in messages:
        content = message["content"] if message["role"] == "user" else []
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts += [part["text"] for part in parts if part["type"] == "text"]
    return texts or [""]
