"""`apply_patch`: a patch over several files, all of it or none.

For models that were trained on this format. Context lines prove that the model knows what it
changes, so a file need not have been read; one that changed since it was read is refused.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments
from treadle.tools.builtin.base import describe, escape_multiline
from treadle.tools.builtin.file_text import DecodedText
from treadle.tools.builtin.files.file_changes import (
    FileChangeTool,
    PlannedChange,
    encode_like,
    encode_utf8,
    read_editable_text,
    run_in_thread_if_long,
)
from treadle.tools.builtin.files.patch_format import (
    PATCH_GRAMMAR,
    FilePatch,
    apply_file_patch,
    parse_patch,
)
from treadle.tools.builtin.session_memory import CallSite


class PatchArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    patch: Annotated[str, describe("The patch, from *** Begin Patch on")]


class ApplyPatchTool(FileChangeTool[PatchArguments]):
    name = "apply_patch"
    arguments_type = PatchArguments
    aliases = ("patch", "applypatch")
    text_argument = "patch"
    grammar = PATCH_GRAMMAR
    argument_aliases: ClassVar = {
        "input": "patch", "text": "patch", "diff": "patch", "content": "patch",
        "patch_text": "patch",
    }  # fmt: skip

    def validate(self, args: PatchArguments) -> str | None:
        parse_patch(args.patch)
        return None

    def summary(self, arguments: Arguments) -> str:
        try:
            names = self.write_paths(self.parse_arguments(arguments))
        except ToolError:
            return f"[{self.name}]"
        return escape_multiline(f"[{self.name}: {', '.join(names)[:200]}]".replace("\n", " "))

    @classmethod
    def write_paths(cls, args: PatchArguments) -> tuple[str, ...]:
        files = parse_patch(args.patch)
        return tuple(path for file in files for path in (file.path, file.moved_to) if path)

    @classmethod
    def changed_paths(cls, args: PatchArguments) -> tuple[str, ...]:
        return tuple(file.path for file in parse_patch(args.patch) if file.kind == "Update")

    async def plan(self, args: PatchArguments, site: CallSite) -> list[PlannedChange]:
        drafts: dict[Path, PatchDraft] = {}
        for file in parse_patch(args.patch):
            path = site.resolve(file.path, for_write=True)
            planned = await _plan_file(file, site, path, drafts)
            drafts.pop(path, None)  # a file that this patch added and then moves is not written
            drafts |= {draft.change.path: draft for draft in planned}
        return [draft.change for draft in drafts.values()]

    def format_confirmation(self, args: PatchArguments, changes: Sequence[PlannedChange]) -> str:
        letters = {(True, False): "A", (False, False): "M", (False, True): "D"}
        kinds = [letters[change.before is None, change.after is None] for change in changes]
        lines = [f"{kind} {c.display_path}" for kind, c in zip(kinds, changes, strict=True)]
        return "Done. Changed files:\n" + "\n".join(lines)


class PatchDraft(msgspec.Struct, frozen=True):
    """A planned change, and the text that a later part of the same patch starts from."""

    change: PlannedChange
    text: DecodedText


async def _plan_file(
    file: FilePatch, site: CallSite, path: Path, drafts: Mapping[Path, PatchDraft]
) -> list[PatchDraft]:
    shown, before = site.display_path(path), drafts.get(path)
    if before is not None and (file.kind != "Update" or before.change.after is None):
        raise ToolError(f"the patch has conflicting parts for {file.path}")
    if file.kind == "Add":
        if await site.read_if_exists(path, 0) is not None:
            raise ToolError(f"{file.path} exists already; use `*** Update File: {file.path}`")
        change = PlannedChange(path, shown, None, encode_utf8(file.content), "", file.content)
        return [PatchDraft(change, DecodedText(file.content))]
    if before is not None:
        content, old_text, text = before.change.before, before.change.old_text, before.text
    else:
        content, text = await read_editable_text(site, path, file.path)
        old_text = text.text
    removal = PatchDraft(PlannedChange(path, shown, content, None, old_text, ""), text)
    if file.kind == "Delete":
        return [removal]
    after = await run_in_thread_if_long(lambda: _patch_text(text, file), text.text)
    new = msgspec.structs.replace(text, text=after)
    data = encode_like(text, new.text, file.path)
    target = site.resolve(file.moved_to, for_write=True) if file.moved_to else path
    if target == path:
        return [PatchDraft(PlannedChange(path, shown, content, data, old_text, new.text), new)]
    if target in drafts:
        raise ToolError(f"the patch has conflicting parts for {file.moved_to}")
    if await site.read_if_exists(target, 0) is not None:
        raise ToolError(f"{file.moved_to} exists already; nothing was changed")
    mode = content.mode if content is not None else None
    moved = PlannedChange(target, site.display_path(target), None, data, old_text, new.text, mode)
    return [PatchDraft(moved, new), *([removal] if content is not None else [])]


def _patch_text(before: DecodedText, file: FilePatch) -> str:
    """Patches know only newlines: lines keep their own ends, new ones get the usual one."""
    if "\r" not in before.text:
        return apply_file_patch(before.text, file)
    if before.line_ending == "\n" or before.text.replace("\r\n", "").count("\n"):
        return apply_file_patch(before.text, file)  # mixed line ends: unchanged lines keep theirs
    return apply_file_patch(before.text.replace("\r\n", "\n"), file).replace("\n", "\r\n")
