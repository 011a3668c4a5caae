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
from treadle.tools.builtin.desk import Desk, Seat, Seen
from treadle.tools.builtin.form import BuiltinTool
from treadle.tools.builtin.notebook import notebook_text
from treadle.tools.builtin.text import decoded, lines_of

IN_MEMORY = 8 << 20
MOST_LINES = 2_000
MOST_LINE_CHARS = 2_000
MOST_CHARS = 80_000
MOST_IMAGE = 3_900_000  # as base64 this is just below the 5 MB that providers take
MOST_PDF = 20 << 20


class ReadArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file_path: Annotated[str, msgspec.Meta(description="The file to read")]
    offset: Annotated[int, msgspec.Meta(description="First line to show, counted from 1")] = 0
    limit: Annotated[int, msgspec.Meta(description="How many lines to show")] = 0


class ReadTool(BuiltinTool[ReadArguments]):
    """`documents` says whether the model reads PDFs itself; otherwise they are turned to text."""

    name = "read"
    form = ReadArguments
    synonyms: ClassVar[Mapping[str, str]] = {"path": "file_path", "file": "file_path"}

    def __init__(self, desk: Desk, *, documents: bool = True) -> None:
        super().__init__(desk)
        self._documents = documents

    def objection(self, given: ReadArguments) -> str | None:
        if not given.file_path:
            return "file_path is empty"
        if given.offset < 0 or given.limit < 0:
            return "offset and limit count lines from 1; they cannot be negative"
        return None

    def reads(self, given: ReadArguments) -> tuple[str, ...]:
        return (given.file_path,)

    async def run(self, given: ReadArguments, seat: Seat) -> ToolOutput:
        path = seat.resolve(given.file_path)
        try:
            content = await seat.look(path, IN_MEMORY)
        except WorkspaceError as error:
            hint = "; list it with ls or glob" if "is a folder" in str(error) else ""
            raise ToolError(f"{error}{hint}") from error
        if content is None:
            raise await seat.missing(given.file_path, path)
        shown = seat.shown(path)
        kind = _picture(content.data)
        if kind:
            return _image(content, kind, shown)
        if content.data.startswith(b"%PDF-"):
            return await self._pdf(content, seat, path, shown)
        if path.suffix == ".ipynb" and not content.is_truncated:
            cells = await asyncio.to_thread(notebook_text, content.data, MOST_CHARS)
            if cells is not None:
                seat.notes.saw(path, Seen(content.digest, is_whole=cells.is_whole))
                return ToolOutput(cells.text, display=f"Read the cells of {shown}")
        return await _text(content, given, seat, path)

    async def _pdf(self, content: FileContent, seat: Seat, path: Path, shown: str) -> ToolOutput:
        if not self._documents:
            return await _pdf_text(seat, path, shown)
        if content.size > MOST_PDF:
            raise ToolError(
                f"{shown} has {content.size:,} bytes, too many to be sent; "
                "take a part out of it with bash (pdftotext -f 1 -l 20, or qpdf --pages)"
            )
        if content.is_truncated:
            content = await seat.workspace.read(str(path))
        document = Document("application/pdf", content.data, title=path.name)
        text = Text(f"{shown}: PDF, {content.size:,} bytes")
        return ToolOutput((text, document), display=f"Read {shown} (PDF)")


async def _text(content: FileContent, given: ReadArguments, seat: Seat, path: Path) -> ToolOutput:
    shown = seat.shown(path)
    first = max(1, given.offset)
    wanted = min(given.limit or MOST_LINES, MOST_LINES)
    text = decoded(content.data, is_cut=content.is_truncated)
    if text is None:
        raise ToolError(
            f"{shown} is not text ({content.size:,} bytes of binary data); "
            "look at it with bash: file, xxd, strings, or a program that knows its format"
        )
    lines = lines_of(text.text)
    total = len(lines)
    if content.is_truncated and first + wanted > total:
        lines, total = await _far_lines(seat, path, first, wanted), 0
    else:
        lines = lines[first - 1 : first - 1 + wanted]
    if not lines:
        if not content.size:
            seat.notes.saw(path, Seen(content.digest, is_whole=True))
            return ToolOutput(f"{shown} is empty.", display=f"Read {shown} (empty)")
        raise ToolError(f"{shown} has only {total} lines; there is none from offset {first} on")
    body, shown_lines, was_cut = _numbered(lines, first)
    last = first + shown_lines - 1
    is_end = not content.is_truncated and last == total
    notes = _notes(first, last, content, total, is_end, text.encoding, was_cut)
    seen = seat.notes.seen.get(path)
    if seen is None or seen.digest != content.digest:
        seen = Seen(content.digest)
    known = content.size if content.is_truncated else total
    seat.notes.saw(path, seen if was_cut else seen.and_lines(first, last, known))
    return ToolOutput(body + notes, display=f"Read {shown}, lines {first} to {last}")


def _numbered(lines: list[str], first: int) -> tuple[str, int, bool]:
    """As many numbered lines as fit, how many they are, and whether one had to be cut."""
    out: list[str] = []
    chars, was_cut = 0, False
    for number, line in enumerate(lines, start=first):
        if len(line) > MOST_LINE_CHARS:
            more = len(line) - MOST_LINE_CHARS
            line, was_cut = f"{line[:MOST_LINE_CHARS]}... [{more} more characters]", True
        out.append(f"{number:>6}\t{line}")
        chars += len(out[-1]) + 1
        if chars > MOST_CHARS:
            break
    return "\n".join(out), len(out), was_cut


def _notes(
    first: int,
    last: int,
    content: FileContent,
    total: int,
    is_end: bool,
    encoding: str,
    was_cut: bool,
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
    if was_cut:
        notes.append("long lines are cut; search in them with grep")
    return f"\n\n({'; '.join(notes)})" if notes else ""


async def _far_lines(seat: Seat, path: Path, first: int, count: int) -> list[str]:
    """Lines of a file that is too large for memory; no line is held whole on the way."""
    script = 'tail -n "+$1" -- "$3" | head -n "$2" | cut -b "1-$4"'
    most = str(MOST_LINE_CHARS * 4)
    argv = ["sh", "-c", script, "sh", str(first), str(count), str(path), most]
    done = await seat.execute(argv, timeout=60, limit=IN_MEMORY)
    if done.timed_out:
        raise ToolError(f"finding line {first} of {path} took over a minute; search with grep")
    return lines_of(done.stdout.decode(errors="replace"))


def _picture(data: bytes) -> str:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


def _image(content: FileContent, kind: str, shown: str) -> ToolOutput:
    if content.size > MOST_IMAGE:
        raise ToolError(
            f"{shown} has {content.size:,} bytes; pictures up to {MOST_IMAGE:,} can be shown. "
            "Make it smaller first, such as with `convert in.png -resize 50% out.png`"
        )
    text = Text(f"{shown}: {kind}, {content.size:,} bytes")
    return ToolOutput((text, Image(kind, content.data)), display=f"Read {shown} ({kind})")


async def _pdf_text(seat: Seat, path: Path, shown: str) -> ToolOutput:
    try:
        done = await seat.execute(
            ["pdftotext", "-layout", str(path), "-"], timeout=60, limit=IN_MEMORY
        )
    except WorkspaceError as error:
        raise ToolError(
            f"{shown} is a PDF, this model takes text only, and pdftotext is not installed"
        ) from error
    if done.exit_code != 0 or not done.stdout.strip():
        why = done.stderr.decode(errors="replace").strip() or "there is no text in it"
        raise ToolError(f"no text could be taken out of {shown}: {why}")
    text = done.stdout.decode(errors="replace")
    return ToolOutput(text[: 2 * MOST_CHARS], display=f"Read the text of {shown} (PDF)")
