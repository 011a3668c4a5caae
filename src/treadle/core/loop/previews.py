"""What the calls of one round would do, shown to the user who has to approve them.

A preview sees the files as the earlier calls of the round will leave them. Its ToolError says that
the call would fail: such a call is not put up for approval. Runs no tool. Used by prepare.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from treadle.core.contracts.tool import Preview, ToolContext
from treadle.core.errors import ToolError, error_text
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.interruption import await_contained

if TYPE_CHECKING:
    from treadle.core.loop.prepare import PreparedCall


class RoundPreviews:
    """The previews of one round. `make_context` gives the context of a call."""

    def __init__(
        self, make_context: Callable[[PreparedCall], ToolContext], emitter: Emitter
    ) -> None:
        self._make_context = make_context
        self._emitter = emitter
        self._earlier: list[PreparedCall] = []  # not looked at yet
        self._shown: dict[str, Preview | None] = {}  # by call id
        self._planned_files: dict[str, bytes | None] = {}
        self._read_keys: set[str] = set()
        self._is_anything_changed = False  # by a command, or by a tool that does not say what

    def add_earlier(self, prepared: PreparedCall) -> None:
        """A call that runs, or may run, before the next ones."""
        self._earlier.append(prepared)

    async def preview(self, prepared: PreparedCall) -> Preview | None:
        """What the call would do. ToolError: it would fail, whatever the earlier calls do."""
        earlier, self._earlier = self._earlier, []
        for one in earlier:
            await self._plan(one)
        try:
            shown = self._shown[prepared.call.id] = await self._run_preview(prepared)
        except ToolError as error:
            if not self._may_change(prepared):
                raise
            return Preview("text", f"This call would fail as things are now: {error}")
        except Exception as error:  # noqa: BLE001 - the user decides without it
            return Preview("text", f"no preview: {error_text(error)}")
        return msgspec.structs.replace(shown, files={}) if shown is not None else None

    def _may_change(self, prepared: PreparedCall) -> bool:
        """Whether an earlier call can change what the preview of this one depends on."""
        keys = prepared.access.reads | prepared.access.writes
        return self._is_anything_changed or not self._read_keys.isdisjoint(keys)

    async def _plan(self, prepared: PreparedCall) -> None:
        """Remember what a call will do to files."""
        access, tool = prepared.access, prepared.tool
        self._read_keys |= access.reads
        if tool is None or tool.spec.effect == "pure":
            return
        shown = self._shown.get(prepared.call.id)
        try:
            shown = shown or await self._run_preview(prepared)
        except Exception:  # noqa: BLE001 - its own approval or result tells what is wrong
            pass
        if shown is not None and shown.files:
            self._planned_files |= shown.files
        else:
            self._is_anything_changed = True

    async def _run_preview(self, prepared: PreparedCall) -> Preview | None:
        assert prepared.tool is not None, "only calls of known tools are shown"
        context = msgspec.structs.replace(
            self._make_context(prepared), planned_files=dict(self._planned_files)
        )
        work = prepared.tool.preview(prepared.arguments, context)
        who = f"the preview of {prepared.tool.spec.name}"
        return await await_contained(work, who, self._emitter)
