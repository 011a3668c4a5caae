"""`write`: a whole file, new or in place of one that was read.

An existing file that was not read is not overwritten: its content would be lost unseen. Mode,
encoding and line ends of the old file stay.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from treadle.core.arguments.fit_names import Report
from treadle.core.contracts.workspace import FileContent
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments
from treadle.lib.text.text import plural
from treadle.tools.builtin.base import FILE_ALIASES
from treadle.tools.builtin.file_text import DecodedText, decode_text, split_lines
from treadle.tools.builtin.files.file_changes import (
    MAX_EDIT_BYTES,
    FileChangeTool,
    PlannedChange,
    encode_like,
    encode_utf8,
    require_unchanged,
)
from treadle.tools.builtin.session_memory import CallSite


class WriteArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file_path: str
    content: str


class WriteTool(FileChangeTool[WriteArguments]):
    name = "write"
    arguments_type = WriteArguments
    needs_whole_file = True
    aliases = ("write_file", "create_file", "create", "save_file", "file_write", "write_to_file")
    argument_aliases: ClassVar = {
        **FILE_ALIASES, "contents": "content", "text": "content", "file_text": "content",
        "file_content": "content", "data": "content", "body": "content",
    }  # fmt: skip

    @classmethod
    def repair_values(cls, arguments: Arguments, report: Report) -> Arguments:
        content = arguments.get("content")
        if not isinstance(content, (dict, list)):
            return arguments
        report.guess("`content` was JSON; its text is written")
        import json

        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        return {**arguments, "content": text}

    def validate(self, args: WriteArguments) -> str | None:
        return None if args.file_path else "file_path is empty"

    @classmethod
    def write_paths(cls, args: WriteArguments) -> tuple[str, ...]:
        return (args.file_path,)

    async def plan(self, args: WriteArguments, site: CallSite) -> list[PlannedChange]:
        path = site.resolve(args.file_path, for_write=True)
        before = await site.read_if_exists(path, MAX_EDIT_BYTES)
        if before is None:
            data = encode_utf8(args.content)
            return [PlannedChange(path, site.display_path(path), None, data, "", args.content)]
        _require_read(site, path, before, args.file_path)
        old = decode_text(before.data) if not before.is_truncated else None
        like = old or DecodedText("")
        content = args.content
        if old is not None and old.line_ending == "\r\n":
            content = content.replace("\r\n", "\n").replace("\n", "\r\n")
        data = encode_like(like, content, args.file_path)
        return [PlannedChange(path, site.display_path(path), before, data, like.text, content)]

    def format_confirmation(self, args: WriteArguments, changes: Sequence[PlannedChange]) -> str:
        (change,) = changes
        lines = plural(len(split_lines(change.new_text)), "line")
        if change.before is None:
            return f"Created {change.display_path} with {lines}."
        crlf = " Its line ends stay CRLF." if "\r\n" in change.new_text else ""
        return f"Wrote {change.display_path}, now {lines}.{crlf}"


def _require_read(site: CallSite, path: Path, content: FileContent, given_path: str) -> None:
    seen = site.session.seen_files.get(path)
    if seen is None and site.is_planned(path):
        return  # an earlier call of the round creates it
    if seen is None:
        raise ToolError(
            f"{given_path} exists and was not read in this session, so it was not overwritten. "
            "Read it first, or change only a part of it with edit"
        )
    require_unchanged(site, path, content, given_path)
    if not seen.is_complete:
        raise ToolError(
            f"only a part of {given_path} was read, so it was not overwritten: the rest would be "
            "lost. Read the rest of it, or change a part with edit"
        )
