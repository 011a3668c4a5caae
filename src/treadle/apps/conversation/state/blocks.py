"""The blocks that a conversation is shown as, one below the other.

    UserMessageBlock   a message of the user         ToolCallBlock   a tool call
    MarkdownBlock      a piece of a reply            NoteBlock       a line from the engine
    CodeBlock          a piece of a fenced block     ShellBlock      a command run with `!`
    ThinkingBlock      the model's thinking

Frozen values without a width or a colour. reducer.py builds them, render/render.py renders them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from treadle.core.transcript.content import Image

Tone = Literal["plain", "faint", "good", "warning", "error"]
CallState = Literal[
    "writing",
    "waiting",  # written and, if it was asked about, allowed: it has not begun
    "asking",
    "running",
    "done",
    "failed",
    "denied",
    "background",
    "stopped",
    "interrupted",  # an earlier process ended before it had a result
]
ActivityKind = Literal[
    "idle", "waiting", "thinking", "writing", "calling", "running", "working", "approval",
    "question", "retrying", "mutating",
]  # fmt: skip


class Activity(msgspec.Struct, frozen=True):
    """What happens right now. `subject` is the tool, or for a child the summary of its call, or
    the mutator."""

    kind: ActivityKind = "idle"
    subject: str = ""


IDLE = Activity("idle")
WAITING = Activity("waiting")
WORKING = Activity("working")
WRITING = Activity("writing")
THINKING = Activity("thinking")


def strip_brackets(summary: str) -> str:
    """The summary of a call, `[bash: ls]` as tools write it, without the brackets."""
    summary = summary.strip()
    return summary[1:-1] if summary.startswith("[") and summary.endswith("]") else summary


class UserMessageBlock(msgspec.Struct, frozen=True):
    """A message of the user; `steered` if it was sent while the agent worked."""

    text: str
    steered: bool = False
    attachments: tuple[str, ...] = ()
    pictures: tuple[Image, ...] = ()


class MarkdownBlock(msgspec.Struct, frozen=True):
    """Markdown without fenced blocks. A continuation has no blank line before it."""

    text: str
    is_continuation: bool = False


class CodeBlock(msgspec.Struct, frozen=True):
    """Lines of a fenced block; a long one is several of these, all but the first continuations."""

    language: str
    text: str
    fence: str = "```"
    indent: int = 0
    is_continuation: bool = False


class ThinkingBlock(msgspec.Struct, frozen=True):
    """The model's thinking, folded to one line unless expanded. A long one is several of these.
    When it is complete, the first has the number of words, and the time if it is known."""

    text: str
    is_continuation: bool = False
    words: int = 0
    seconds: float = 0.0


class ChildProgress(msgspec.Struct, frozen=True):
    """What a child agent has done so far. `children` are its own child agents by their call."""

    calls: int = 0
    tokens: int = 0
    activity: Activity = IDLE
    recent_calls: tuple[str, ...] = ()
    title: str = ""
    children: dict[str, ChildProgress] = {}


class ToolCallBlock(msgspec.Struct, frozen=True):
    """A tool call. `result` is the text for the model, `display` the text for the user."""

    call_id: str
    name: str
    state: CallState = "writing"
    summary: str = ""
    raw: str = ""
    argument_chars: int = 0
    progress: str = ""
    result: str = ""
    display: str = ""
    reason: str = ""
    task_id: str = ""
    full_output: str = ""
    child: ChildProgress | None = None
    pictures: tuple[Image, ...] = ()
    is_edited: bool = False  # the user changed the arguments; `raw` holds those of the run

    @property
    def is_finished(self) -> bool:
        return self.state in ("done", "failed", "denied", "stopped")


class NoteBlock(msgspec.Struct, frozen=True):
    """`attempt`: of a model call that failed; the note of the next one takes its place."""

    text: str
    tone: Tone = "faint"
    attempt: int = 0


class ShellBlock(msgspec.Struct, frozen=True):
    """A command that the user ran with `!`."""

    command: str
    output: str = ""
    exit_code: int | None = None
    is_finished: bool = False


_TextBlock = UserMessageBlock | MarkdownBlock | CodeBlock | ThinkingBlock
ViewBlock = _TextBlock | ToolCallBlock | NoteBlock | ShellBlock


class TaskLine(msgspec.Struct, frozen=True):
    """A call that runs in the background."""

    task_id: str
    call_id: str
    summary: str
