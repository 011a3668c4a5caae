"""`apply_patch`: a patch over several files, all of it or none.

For models that were trained on this form. Context lines are the proof that the model knows what
it changes, so a file need not have been read; one that was read and has changed is refused.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments
from treadle.tools.builtin.changes import (
    Change,
    ChangingTool,
    aside,
    encoded_like,
    text_to_change,
)
from treadle.tools.builtin.desk import Seat
from treadle.tools.builtin.form import visible
from treadle.tools.builtin.patch import FilePatch, parse_patch, patched
from treadle.tools.builtin.text import Decoded


class ApplyPatchArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    patch: Annotated[str, msgspec.Meta(description="The patch, from *** Begin Patch on")]


class ApplyPatchTool(ChangingTool[ApplyPatchArguments]):
    name = "apply_patch"
    form = ApplyPatchArguments
    synonyms: ClassVar[Mapping[str, str]] = {"input": "patch", "text": "patch"}

    def objection(self, given: ApplyPatchArguments) -> str | None:
        parse_patch(given.patch)
        return None

    def summary(self, arguments: Arguments) -> str:
        try:
            names = self.writes(self.given(arguments))
        except ToolError:
            return f"[{self.name}]"
        return visible(f"[{self.name}: {', '.join(names)[:200]}]".replace("\n", " "))

    def writes(self, given: ApplyPatchArguments) -> tuple[str, ...]:
        named: list[str] = []
        for file in parse_patch(given.patch):
            named += [path for path in (file.path, file.moved_to) if path]
        return tuple(named)

    async def plan(self, given: ApplyPatchArguments, seat: Seat) -> list[Change]:
        drafts: dict[Path, Draft] = {}
        for file in parse_patch(given.patch):
            path = seat.resolve(file.path, changing=True)
            for draft in await _drafts(file, seat, path, drafts.get(path)):
                drafts[draft.change.path] = draft
        return [draft.change for draft in drafts.values()]

    def confirmation(self, given: ApplyPatchArguments, changes: Sequence[Change]) -> str:
        words = {(True, False): "A", (False, False): "M", (False, True): "D"}
        lines = [
            f"{words[change.before is None, change.after is None]} {change.shown}"
            for change in changes
        ]
        return "Done. Changed files:\n" + "\n".join(lines)


class Draft(msgspec.Struct, frozen=True):
    """A planned change, and the text that a later part of the same patch would find."""

    change: Change
    text: Decoded


async def _drafts(file: FilePatch, seat: Seat, path: Path, before: Draft | None) -> list[Draft]:
    shown = seat.shown(path)
    if before is not None and (file.kind != "Update" or before.change.after is None):
        raise ToolError(f"the patch says two things about {file.path} that do not go together")
    if file.kind == "Add":
        if await seat.look(path, 0) is not None:
            raise ToolError(f"{file.path} exists already; use `*** Update File: {file.path}`")
        change = Change(path, shown, None, file.content.encode(), "", file.content)
        return [Draft(change, Decoded(file.content))]
    if before is not None:
        content, old_text, text = before.change.before, before.change.old_text, before.text
    else:
        content, text = await text_to_change(seat, path, file.path)
        old_text = text.text
    gone = Draft(Change(path, shown, content, None, old_text, ""), text)
    if file.kind == "Delete":
        return [gone]
    after = await aside(lambda: _patched(text, file), text.text)
    new = msgspec.structs.replace(text, text=after)
    data = encoded_like(text, new.text, file.path)
    target = seat.resolve(file.moved_to, changing=True) if file.moved_to else path
    if target == path:
        return [Draft(Change(path, shown, content, data, old_text, new.text), new)]
    if await seat.look(target, 0) is not None:
        raise ToolError(f"{file.moved_to} exists already; nothing was moved there")
    mode = content.mode if content is not None else None
    moved = Change(target, seat.shown(target), None, data, old_text, new.text, mode)
    return [Draft(moved, new), *([gone] if content is not None else [])]


def _patched(before: Decoded, file: FilePatch) -> str:
    """Patches know only newlines: lines keep their own ends, new ones get the usual."""
    if "\r" not in before.text:
        return patched(before.text, file)
    if before.line_end == "\n" or before.text.replace("\r\n", "").count("\n"):
        return patched(before.text, file)  # mixed: loosely matched lines stay as they are
    return patched(before.text.replace("\r\n", "\n"), file).replace("\n", "\r\n")
