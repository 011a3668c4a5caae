"""A program that the model wrote, at work in the sandbox, as the Model of a child agent.

Each "reply" of this model is what the program wants next: calls of tools, or its end with what it
printed. So every call of a program is a call of a child: decided on, logged, limited and shown as
any other. program_prelude.py is the other side of the pipe. Used by code_tool.py.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.contracts.model import Model, ModelCard, ModelEvent, ModelRequest, Reply
from treadle.core.contracts.workspace import CommandResult, RunningCommand, Workspace
from treadle.core.errors import ModelError, WorkspaceError
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.items import AssistantItem, ToolResultItem
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.lib.shielded import complete

PRELUDE = Path(__file__).with_name("program_prelude.py")
POLL_SECONDS = 0.005
MAX_POLL_SECONDS = 0.1


class _Call(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any] = {}


class _Message(msgspec.Struct, frozen=True):
    """What the program wants: calls, or its end."""

    calls: tuple[_Call, ...] = ()
    printed: str = ""
    error: str = ""


class ProgramFailed(Exception):
    """The program has ended, or was ended, without saying so itself."""


class ProgramModel:
    """`tools` are the functions of the program, with the names of their parameters; `seconds` the
    time that it may take itself, without that of its calls. The process starts with the first
    request. `failure`: why it ended early, if it did."""

    name = "program"
    card = ModelCard(name, window=1 << 30, input_price=0.0, output_price=0.0)
    fallback: Model | None = None

    def __init__(
        self,
        workspace: Workspace | None,
        code: str,
        tools: Mapping[str, Sequence[str]],
        seconds: float,
    ) -> None:
        self._workspace, self._code, self._tools = workspace, code, tools
        self._seconds = seconds
        self._command: RunningCommand | None = None
        self._ended: asyncio.Task[CommandResult] | None = None
        self._frames = self._calls = 0
        self._open_calls: list[str] = []
        self._answer: str | None = None
        self.failure = ""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if request.purpose != "turn":
            raise ModelError("a program answers no questions", provider=self.name)
        if self._answer is None:
            try:
                calls = await self._advance(request)
            except (ProgramFailed, WorkspaceError, msgspec.DecodeError) as error:
                self.failure = str(error)
                await self.aclose()
                calls, self._answer = (), f"The program was ended: {error}"
            if calls:
                yield Reply(AssistantItem(calls, "tool_use", self.name, Usage()))
                return
        yield Reply(AssistantItem((Text(self._answer or ""),), "end_turn", self.name, Usage()))

    async def aclose(self) -> None:
        """End the process and all that it started."""
        command, self._command = self._command, None
        if command is not None:
            await complete(command.kill())
        if self._ended is not None:
            await asyncio.wait([self._ended])

    # --- the process -----------------------------------------------------------------------

    async def _advance(self, request: ModelRequest) -> tuple[ToolCall, ...]:
        """Answer what the program waits for, and read what it wants next; () at its end."""
        if self._command is None:
            await self._start()
        else:
            results = _list_results(request.transcript, self._open_calls)
            await self._send({"results": results})
        message = await self._read_message()
        if not message.calls:
            self.failure = message.error
            self._answer = "\n".join(filter(None, [message.printed.rstrip("\n"), message.error]))
            self._answer = self._answer or "(it printed nothing)"
            return ()
        if request.options.tool_choice == "none" or not request.tools:
            raise ProgramFailed(f"no more than {self._calls} calls were possible")
        calls = []
        for one in message.calls:
            self._calls += 1
            raw = msgspec.json.encode(one.arguments).decode()
            calls.append(ToolCall(f"call_{self._calls}", one.name, raw))
        self._open_calls = [call.id for call in calls]
        return tuple(calls)

    async def _start(self) -> None:
        if self._workspace is None:
            raise ProgramFailed("there is no workspace to run it in")
        prelude = await asyncio.to_thread(PRELUDE.read_text, "utf-8")
        self._command = await self._workspace.start(
            f"exec {shlex.quote(find_python())} -I -c {shlex.quote(prelude)}", stdin=True
        )
        self._ended = asyncio.create_task(self._command.wait())
        await self._send({"code": self._code, "tools": self._tools})

    async def _send(self, message: object) -> None:
        assert self._command is not None, "it is started before it is written to"
        text = msgspec.json.encode(message).decode()
        await self._command.write(text + "\n")

    async def _read_message(self) -> _Message:
        parts = []
        while True:
            more, part = await self._read_frame()
            parts.append(part)
            if not more:
                return msgspec.json.decode("".join(parts), type=_Message)
            await self._send({})

    async def _read_frame(self) -> tuple[bool, str]:
        """The next line of the program for us. A command in the background keeps its output in a
        file, which is looked at until the line is there: the program waits for our answer then."""
        assert self._command is not None, "it is started before it is read from"
        assert self._ended is not None, "both are made together"
        self._frames += 1
        line = re.compile(rf"^@treadle {self._frames} ([01]) (.*)\n", re.MULTILINE)
        clock, pause = asyncio.get_running_loop(), POLL_SECONDS
        began = clock.time()
        while True:
            is_over = self._ended.done()  # first: what it wrote before its end is then there
            if found := line.search(self._command.output()):
                self._seconds -= clock.time() - began
                return found[1] == "1", found[2]
            if is_over:
                result = await self._ended
                text = result.output.strip()[-1000:]
                how = result.signal or f"exit code {result.exit_code}"
                raise ProgramFailed(" ".join(["it ended by itself:", how, result.note, text]))
            if clock.time() - began > self._seconds:
                raise ProgramFailed("its time is over; see `timeout`")
            await asyncio.wait([self._ended], timeout=pause)
            pause = min(MAX_POLL_SECONDS, pause * 1.5)


def find_python() -> str:
    """Ours if commands can see it, which is so for that of the system."""
    return sys.executable if sys.prefix == sys.base_prefix and sys.executable else "python3"


def _list_results(view: Transcript, call_ids: Sequence[str]) -> list[dict[str, object]]:
    """What the program gets for its calls: the text that a model would see."""
    found = {
        item.call_id: item
        for item in view[-2 * len(call_ids) - 16 :]
        if isinstance(item, ToolResultItem) and item.call_id in call_ids
    }
    return [
        {"text": found[one].model_text, "is_error": found[one].is_error}
        if one in found
        else {"text": "there is no result", "is_error": True}
        for one in call_ids
    ]
