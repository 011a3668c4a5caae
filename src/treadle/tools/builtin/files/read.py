"""`read`: a file for the model, with line numbers; pictures, PDFs and notebooks as what they are.

Text is shown in pieces that fit a request, whatever the size of the file. What was seen is noted
at the desk, so that a later edit can tell whether the file has changed since.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.contracts.workspace import FileContent
from treadle.core.errors import ToolError, WorkspaceError
from treadle.core.transcript.content import Document, Image, Text
from treadle.tools.builtin.base import BuiltinTool
from treadle.tools.builtin.files.notebook import render_notebook
from treadle.tools.builtin.session import CallSite, SeenFile, ToolSessions
from treadle.tools.builtin.text import decode_text, split_lines

MAX_IN_MEMORY_BYTES = 8 << 20
MAX_LINES = 2_000
MAX_LINE_CHARS = 2_000
MAX_CHARS = 80_000
MAX_IMAGE_BYTES = 3_900_000  # as base64 this is just below the 5 MB that providers take
MAX_PDF_BYTES = 20 << 20


class ReadArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file_path: Annotated[str, msgspec.Meta(description="The file to read")]
    offset: Annotated[int, msgspec.Meta(description="First line to show, counted from 1")] = 0
    limit: Annotated[int, msgspec.Meta(description="How many lines to show")] = 0


class ReadTool(BuiltinTool[ReadArguments]):
    """`documents` says whether the model reads PDFs itself; otherwise they are turned to text."""

    name = "read"
    arguments_type = ReadArguments
    argument_aliases: ClassVar[Mapping[str, str]] = {"path": "file_path", "file": "file_path"}

    def __init__(self, sessions: ToolSessions, *, native_pdf: bool = True) -> None:
        super().__init__(sessions)
        self._native_pdf = native_pdf

    def validate(self, args: ReadArguments) -> str | None:
        if not args.file_path:
            return "file_path is empty"
        if args.offset < 0 or args.limit < 0:
            return "offset and limit count lines from 1; they cannot be negative"
        return None

    def read_paths(self, args: ReadArguments) -> tuple[str, ...]:
        return (args.file_path,)

    async def run(self, args: ReadArguments, site: CallSite) -> ToolOutput:
        path = site.resolve(args.file_path)
        try:
            content = await site.read_if_exists(path, MAX_IN_MEMORY_BYTES)
        except WorkspaceError as error:
            hint = "; list it with ls or glob" if "is a folder" in str(error) else ""
            raise ToolError(f"{error}{hint}") from error
        if content is None:
            raise await site.make_not_found_error(args.file_path, path)
        shown = site.display_path(path)
        kind = _detect_image_type(content.data)
        if kind:
            return _make_image_output(content, kind, shown)
        if content.data.startswith(b"%PDF-"):
            return await self._read_pdf(content, site, path, shown)
        if path.suffix == ".ipynb" and not content.is_truncated:
            cells = await asyncio.to_thread(render_notebook, content.data, MAX_CHARS)
            if cells is not None:
                site.session.record_seen(
                    path, SeenFile(content.digest, is_complete=cells.is_complete)
                )
                return ToolOutput(cells.text, display=f"Read the cells of {shown}")
        return await _read_text(content, args, site, path)

    async def _read_pdf(
        self, content: FileContent, site: CallSite, path: Path, display_path: str
    ) -> ToolOutput:
        if not self._native_pdf:
            return await _extract_pdf_text(site, path, display_path)
        if content.size > MAX_PDF_BYTES:
            raise ToolError(
                f"{display_path} has {content.size:,} bytes, too many to be sent; "
                "take a part out of it with bash (pdftotext -f 1 -l 20, or qpdf --pages)"
            )
        if content.is_truncated:
            content = await site.workspace.read(str(path))
        document = Document("application/pdf", content.data, title=path.name)
        text = Text(f"{display_path}: PDF, {content.size:,} bytes")
        return ToolOutput((text, document), display=f"Read {display_path} (PDF)")


async def _read_text(
    content: FileContent, args: ReadArguments, site: CallSite, path: Path
) -> ToolOutput:
    shown = site.display_path(path)
    first = max(1, args.offset)
    wanted = min(args.limit or MAX_LINES, MAX_LINES)
    text = decode_text(content.data, is_truncated=content.is_truncated)
    if text is None:
        raise ToolError(
            f"{shown} is not text ({content.size:,} bytes of binary data); "
            "look at it with bash: file, xxd, strings, or a program that knows its format"
        )
    lines = split_lines(text.text)
    total = len(lines)
    if content.is_truncated and first + wanted > total:
        lines, total = await _read_distant_lines(site, path, first, wanted), 0
    else:
        lines = lines[first - 1 : first - 1 + wanted]
    if not lines:
        if not content.size:
            site.session.record_seen(path, SeenFile(content.digest, is_complete=True))
            return ToolOutput(f"{shown} is empty.", display=f"Read {shown} (empty)")
        raise ToolError(f"{shown} has only {total} lines; there is none from offset {first} on")
    body, shown_lines, was_cut = _number_lines(lines, first)
    last = first + shown_lines - 1
    is_end = not content.is_truncated and last == total
    notes = _format_notes(first, last, content, total, is_end, text.encoding, was_cut)
    seen = site.session.seen_files.get(path)
    if seen is None or seen.digest != content.digest:
        seen = SeenFile(content.digest)
    known = content.size if content.is_truncated else total
    site.session.record_seen(path, seen if was_cut else seen.with_lines(first, last, known))
    return ToolOutput(body + notes, display=f"Read {shown}, lines {first} to {last}")


def _number_lines(lines: list[str], first: int) -> tuple[str, int, bool]:
    """As many numbered lines as fit, how many they are, and whether one had to be cut."""
    out: list[str] = []
    chars, was_cut = 0, False
    for number, line in enumerate(lines, start=first):
        if len(line) > MAX_LINE_CHARS:
            more = len(line) - MAX_LINE_CHARS
            line, was_cut = f"{line[:MAX_LINE_CHARS]}... [{more} more characters]", True
        out.append(f"{number:>6}\t{line}")
        chars += len(out[-1]) + 1
        if chars > MAX_CHARS:
            break
    return "\n".join(out), len(out), was_cut


def _format_notes(
    first: int,
    last: int,
    content: FileContent,
    total: int,
    is_end: bool,
    encoding: str,
    has_truncated_lines: bool,
) -> str:
    notes: list[str] = []
    if content.is_truncated:
        notes.append(
            f"lines {first} to {last} of a file of {content.size:,} bytes; "
            f"read on with offset={last + 1}, or search it with grep"
        )
    elif not is_end:
        notes.append(f"lines {first} to {last} of {total}; read on with offset={last + 1}")
    elif first > 1:
        notes.append(f"lines {first} to {last}, the end of the file")
    if encoding != "utf-8":
        notes.append(f"encoded as {encoding}, which edits keep")
    if has_truncated_lines:
        notes.append("long lines are cut; search in them with grep")
    return f"\n\n({'; '.join(notes)})" if notes else ""


async def _read_distant_lines(site: CallSite, path: Path, first: int, count: int) -> list[str]:
    """Lines of a file that is too large for memory; no line is held whole on the way."""
    script = 'tail -n "+$1" -- "$3" | head -n "$2" | cut -b "1-$4"'
    most = str(MAX_LINE_CHARS * 4)
    argv = ["sh", "-c", script, "sh", str(first), str(count), str(path), most]
    done = await site.execute(argv, timeout=60, limit=MAX_IN_MEMORY_BYTES)
    if done.timed_out:
        raise ToolError(f"finding line {first} of {path} took over a minute; search with grep")
    return split_lines(done.stdout.decode(errors="replace"))


def _detect_image_type(data: bytes) -> str:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


def _make_image_output(content: FileContent, kind: str, display_path: str) -> ToolOutput:
    if content.size > MAX_IMAGE_BYTES:
        raise ToolError(
            f"{display_path} has {content.size:,} bytes; pictures up to {MAX_IMAGE_BYTES:,} can be shown. "
            "Make it smaller first, such as with `convert in.png -resize 50% out.png`"
        )
    text = Text(f"{display_path}: {kind}, {content.size:,} bytes")
    return ToolOutput((text, Image(kind, content.data)), display=f"Read {display_path} ({kind})")


async def _extract_pdf_text(site: CallSite, path: Path, display_path: str) -> ToolOutput:
    try:
        done = await site.execute(
            ["pdftotext", "-layout", str(path), "-"], timeout=60, limit=MAX_IN_MEMORY_BYTES
        )
    except WorkspaceError as error:
        raise ToolError(
            f"{display_path} is a PDF, this model takes text only, and pdftotext is not installed"
        ) from error
    if done.exit_code != 0 or not done.stdout.strip():
        why = done.stderr.decode(errors="replace").strip() or "there is no text in it"
        raise ToolError(f"no text could be taken out of {display_path}: {why}")
    text = done.stdout.decode(errors="replace")
    return ToolOutput(text[: 2 * MAX_CHARS], display=f"Read the text of {display_path} (PDF)")
