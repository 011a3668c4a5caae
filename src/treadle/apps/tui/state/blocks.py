"""What a conversation looks like to a person: blocks, one under the other.

    Said      what the person wrote          Call     a tool call, from first letter to end
    Words     a piece of Markdown            Note     a line from the engine or the program
    Code      a piece of a fenced block      Shell    a command that the person ran with `!`
    Thought   what the model thought

Frozen values without a width or a colour. How they grow is reducer.py's business, how they look
render/render.py's.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Tone = Literal["plain", "faint", "good", "warning", "error"]
CallState = Literal[
    "writing", "asking", "running", "done", "failed", "denied", "background", "stopped"
]


class UserMessageBlock(msgspec.Struct, frozen=True):
    """The person's words; `steered` if they came while the agent worked."""

    text: str
    steered: bool = False
    attachments: tuple[str, ...] = ()


class MarkdownBlock(msgspec.Struct, frozen=True):
    """Markdown without fenced blocks. `tight` goes on directly under the block before."""

    text: str
    is_continuation: bool = False


class CodeBlock(msgspec.Struct, frozen=True):
    """Lines of a fenced block; a long one is several of these, all but the first tight."""

    language: str
    text: str
    fence: str = "```"
    indent: int = 0
    is_continuation: bool = False


class ThinkingBlock(msgspec.Struct, frozen=True):
    """What the model thought; folded to one line unless opened. A long one is several of these."""

    text: str
    is_continuation: bool = False


class ChildProgress(msgspec.Struct, frozen=True):
    """What a child agent has done so far."""

    calls: int = 0
    tokens: int = 0
    activity: str = ""
    recent_calls: tuple[str, ...] = ()


class ToolCallBlock(msgspec.Struct, frozen=True):
    """A tool call. `result` is what the model was told, `display` what is for the person."""

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

    @property
    def is_finished(self) -> bool:
        return self.state in ("done", "failed", "denied", "stopped")


class NoteBlock(msgspec.Struct, frozen=True):
    text: str
    tone: Tone = "faint"


class ShellBlock(msgspec.Struct, frozen=True):
    """A command of the person's own. No exit code yet means that it still runs."""

    command: str
    output: str = ""
    exit_code: int | None = None
    is_finished: bool = False


ViewBlock = (
    UserMessageBlock
    | MarkdownBlock
    | CodeBlock
    | ThinkingBlock
    | ToolCallBlock
    | NoteBlock
    | ShellBlock
)


class TodoLine(msgspec.Struct, frozen=True):
    text: str
    state: Literal["open", "active", "done"] = "open"


class TaskLine(msgspec.Struct, frozen=True):
    """A call that goes on in the background."""

    task_id: str
    call_id: str
    summary: str
