"""`read`: a file for the model: text with line numbers, images, PDFs, notebooks.

Text is shown in pieces that fit a request, whatever the size of the file. The session records
what was seen, so that a later edit notices if the file has changed since.
"""

import asyncio
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from treadle.core.arguments.fit_names import fold_name
from treadle.core.contracts.tool import RepairedArguments, ToolOutput
from treadle.core.contracts.workspace import FileContent, OutsideReader
from treadle.core.errors import MissingExtra, ToolError, WorkspaceError
from treadle.core.shrink_image import UnreadableImage, shrink_image
from treadle.core.transcript.content import Arguments, Document, Image, Text, parse_arguments
from treadle.lib.files.media_types import detect_media_type
from treadle.lib.text.text import plural
from treadle.tools.builtin.base import FILE_ALIASES, BuiltinTool, describe
from treadle.tools.builtin.file_text import decode_text, format_numbered_line, split_lines
from treadle.tools.builtin.session_memory import CallSite, SeenFile, ToolSessions

MAX_IN_MEMORY_BYTES = 8 << 20
MAX_WIDE_BYTES = 64 << 20
_WIDE_ENCODINGS = ("utf-16", "utf-32")
MAX_LINES = 2_000
MAX_LINE_CHARS = 2_000
MAX_CHARS = 80_000
MAX_PDF_BYTES = 20 << 20
MAX_PICTURE_BYTES = 64 << 20
_BY_HAND = "Make it smaller with bash, such as `convert in.png -resize 50% out.png`"


_LAST_LINES = ("end_line", "endLine", "line_end", "end_line_one_indexed_inclusive")
_WHOLE_FILE = "should_read_entire_file"


def read_range(lines: Any) -> dict[str, int]:
    """The arguments of `read` for the first and the last line; -1 is the end of the file."""
    match parse_arguments(f'{{"lines":{lines}}}') if isinstance(lines, str) else {"lines": lines}:
        case {"lines": [int(first), int(last)]}:
            return {"offset": first, "limit": max(last - first + 1, 1) if last != -1 else 0}
    return {}


def _has_paths(name: str, given: Any) -> bool:
    """Whether this argument is a list of at least two files."""
    if fold_name(name) not in ("filepaths", "paths") or not isinstance(given, list):
        return False
    return len(given) > 1 and all(isinstance(path, str) for path in given)


class ReadArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file_path: str
    offset: Annotated[int, describe("First line, from 1")] = 0
    limit: Annotated[int, describe("Lines")] = 0


class ReadTool(BuiltinTool[ReadArguments]):
    """`native_pdf`: the model reads PDFs itself; otherwise their text is extracted."""

    name = "read"
    kind = "read"
    arguments_type = ReadArguments
    aliases = (
        "read_file", "view", "cat", "open_file", "view_file", "file_read", "view_image",
        "read_image", "notebook_read",
    )  # fmt: skip
    argument_aliases: ClassVar = {
        **FILE_ALIASES, "start_line": "offset", "line_offset": "offset", "max_lines": "limit",
        "num_lines": "limit", "start_line_one_indexed": "offset",
    }  # fmt: skip

    def __init__(self, sessions: ToolSessions, *, native_pdf: bool = True) -> None:
        super().__init__(sessions)
        self._native_pdf = native_pdf

    def repair(self, arguments: Arguments) -> RepairedArguments:
        """Also with the last line in place of the number of lines, and with several files."""
        plain, notes = dict(arguments), list[str]()
        if plain.pop(_WHOLE_FILE, None) is not None:  # it is what `read` does without a range
            notes.append(f"`{_WHOLE_FILE}` is left out")
        for name in (*_LAST_LINES, "view_range"):
            if name in plain and "limit" not in plain:
                given, first = plain[name], plain.get("offset", plain.get("start_line", 1))
                lines = read_range(given if name == "view_range" else [first, given])
                if lines:
                    del plain[name]
                    plain |= lines
                    notes.append(f"`{name}` is `offset` and `limit`")
        several = next((name for name, given in plain.items() if _has_paths(name, given)), "")
        if several:
            notes.append(f"each file of `{several}` has a call of its own")
        calls = [{**plain, several: path} for path in plain[several]] if several else [plain]
        meant, *others = map(super().repair, calls)
        more = tuple([one.arguments for one in others])
        return msgspec.structs.replace(meant, notes=(*notes, *meant.notes), more=more)

    def validate(self, args: ReadArguments) -> str | None:
        if not args.file_path:
            return "file_path is empty"
        if args.offset < 0 or args.limit < 0:
            return "offset and limit count lines from 1; they cannot be negative"
        return None

    @classmethod
    def read_paths(cls, args: ReadArguments) -> tuple[str, ...]:
        return (args.file_path,)

    async def run(self, args: ReadArguments, site: CallSite) -> ToolOutput:
        try:
            path = site.resolve(args.file_path)
        except WorkspaceError:
            if site.sessions.outside is None:
                raise
            return await _read_outside(args, site, site.sessions.outside)
        try:
            content = await site.read_if_exists(path, MAX_IN_MEMORY_BYTES)
        except WorkspaceError as error:
            hint = "; list it with ls or glob" if error.kind == "is_folder" else ""
            raise ToolError(f"{error}{hint}") from error
        if content is None:
            raise await site.make_not_found_error(args.file_path, path)
        shown = site.display_path(path)
        kind = detect_media_type(content.data)
        if kind == "application/pdf":
            return await self._read_pdf(content, site, path)
        if kind:
            return await _make_image_output(content, kind, site, path)
        if path.suffix == ".ipynb" and not content.is_truncated:
            from treadle.tools.builtin.files.notebook import render_notebook

            cells = await asyncio.to_thread(render_notebook, content.data, MAX_CHARS)
            if cells is not None:
                seen = SeenFile(content.digest, is_complete=cells.is_complete)
                site.session.record_seen(path, seen)
                return ToolOutput(cells.text, display=f"Read the cells of {shown}")
        return await _read_text(content, args, site, path)

    async def _read_pdf(self, content: FileContent, site: CallSite, path: Path) -> ToolOutput:
        shown = site.display_path(path)
        if not self._native_pdf:
            return await _extract_pdf_text(site, path, shown)
        if content.size > MAX_PDF_BYTES:
            raise ToolError(
                f"{shown} has {content.size:,} bytes, too many to be sent; "
                "extract a part with bash (pdftotext -f 1 -l 20, or qpdf --pages)"
            )
        if content.is_truncated:
            content = await site.workspace.read(str(path))
        document = Document("application/pdf", content.data, title=path.name)
        text = Text(f"{shown}: PDF, {content.size:,} bytes")
        return ToolOutput((text, document), display=f"Read {shown} (PDF)")


async def _read_outside(
    args: ReadArguments, site: CallSite, workspace: OutsideReader
) -> ToolOutput:
    """A file outside of the workspace: text and pictures, up to a size. It is never edited."""
    whole = site.join(args.file_path)
    try:
        content = await workspace.read_outside(str(whole), limit=MAX_IN_MEMORY_BYTES)
    except WorkspaceError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise ToolError(f"{args.file_path} does not exist") from error
        raise
    if content.is_truncated:
        raise ToolError(f"{args.file_path} has {content.size:,} bytes; read parts of it with bash")
    kind = detect_media_type(content.data)
    if kind == "application/pdf":
        raise ToolError(f"{args.file_path} is a PDF outside of the folder; copy it into the folder")
    if kind:
        return await _make_image_output(content, kind, site, whole)
    return await _read_text(content, args, site, whole)


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
    is_distant = content.is_truncated and first + wanted > total
    if is_distant and text.encoding.startswith(_WIDE_ENCODINGS):
        # The programs that find distant lines do not know these encodings.
        content, lines = await _read_wide_lines(site, path, shown)
        total, is_distant = len(lines), False
    if is_distant:
        lines, total = await _read_distant_lines(site, path, text.encoding, first, wanted), 0
    else:
        lines = lines[first - 1 : first - 1 + wanted]
    if not lines:
        if not content.size:
            site.session.record_seen(path, SeenFile(content.digest, is_complete=True))
            return ToolOutput(f"{shown} is empty.", display=f"Read {shown} (empty)")
        total = total or await _count_lines(site, path)
        raise ToolError(f"{shown} has only {plural(total, 'line')}; offset {first} is past the end")
    body, shown_lines, was_cut = _number_lines(lines, first)
    last = first + shown_lines - 1
    notes = _describe_part(first, last, content, total)
    if text.encoding != "utf-8":
        notes.append(f"encoded as {text.encoding}, which edits keep")
    if was_cut:
        notes.append("long lines are truncated; search in them with grep")
    seen = site.session.seen_files.get(path)
    if seen is None or seen.digest != content.digest:
        seen = SeenFile(content.digest)
    known = content.size if content.is_truncated else total
    site.session.record_seen(path, seen if was_cut else seen.with_lines(first, last, known))
    rest = f"\n\n({'; '.join(notes)})" if notes else ""
    return ToolOutput(body + rest, display=f"Read {shown}, lines {first} to {last}")


def _number_lines(lines: list[str], first: int) -> tuple[str, int, bool]:
    """As many numbered lines as fit, their count, and whether one was truncated."""
    out: list[str] = []
    chars, was_cut = 0, False
    for number, line in enumerate(lines, start=first):
        if len(line) > MAX_LINE_CHARS:
            more = len(line) - MAX_LINE_CHARS
            line, was_cut = f"{line[:MAX_LINE_CHARS]}... [{more} more characters]", True
        out.append(format_numbered_line(number, line))
        chars += len(out[-1]) + 1
        if chars > MAX_CHARS:
            break
    return "\n".join(out), len(out), was_cut


def _describe_part(first: int, last: int, content: FileContent, total: int) -> list[str]:
    if content.is_truncated:
        which = f"lines {first} to {last} of a file of {content.size:,} bytes"
        return [f"{which}; read on with offset={last + 1}, or search it with grep"]
    if last != total:
        return [f"lines {first} to {last} of {total}; read on with offset={last + 1}"]
    return [f"lines {first} to {last}, the end of the file"] if first > 1 else []


async def _read_distant_lines(
    site: CallSite, path: Path, encoding: str, first: int, count: int
) -> list[str]:
    """Lines of a file that is too large for memory; no line is held whole."""
    script = 'tail -n "+$2" -- "$1" | head -n "$3" | cut -b "1-$4"'
    numbers = str(first), str(count), str(MAX_LINE_CHARS * 4)
    output = await _run_script(site, script, path, *numbers)
    return split_lines(output.decode(encoding, errors="replace"))


async def _read_wide_lines(site: CallSite, path: Path, shown: str) -> tuple[FileContent, list[str]]:
    """All lines of a large file in UTF-16 or UTF-32."""
    content = await site.workspace.read(str(path), limit=MAX_WIDE_BYTES)
    text = decode_text(content.data)
    if content.is_truncated or text is None:
        raise ToolError(
            f"this part of {shown} ({content.size:,} bytes, not UTF-8) cannot be read; "
            "convert the file first with bash: iconv -t utf-8"
        )
    return content, await asyncio.to_thread(split_lines, text.text)


async def _count_lines(site: CallSite, path: Path) -> int:
    output = await _run_script(site, 'grep -c "" -- "$1"', path)
    return int(output) if output.strip().isdigit() else 0


async def _run_script(site: CallSite, script: str, path: Path, *arguments: str) -> bytes:
    argv = ["sh", "-c", script, "sh", str(path), *arguments]
    done = await site.execute(argv, timeout=60, limit=MAX_IN_MEMORY_BYTES)
    if done.timed_out:
        raise ToolError(f"reading that far into {path} took over a minute; search with grep")
    return done.stdout


async def _make_image_output(
    content: FileContent, kind: str, site: CallSite, path: Path
) -> ToolOutput:
    """The picture, made smaller if no provider takes it as it is."""
    shown = site.display_path(path)
    if content.size > MAX_PICTURE_BYTES:
        raise ToolError(f"{shown} has {content.size:,} bytes, too many for a picture; {_BY_HAND}")
    if content.is_truncated:
        content = await site.workspace.read(str(path))
    try:
        small = await asyncio.to_thread(shrink_image, kind, content.data)
    except (MissingExtra, UnreadableImage) as error:
        raise ToolError(f"{shown} cannot be shown: {error}. {_BY_HAND}") from error
    note = f" ({small.note})" if small.note else ""
    text = Text(f"{shown}: {kind}, {content.size:,} bytes{note}")
    return ToolOutput((text, Image(small.media_type, small.data)), f"Read {shown} ({kind})")


async def _extract_pdf_text(site: CallSite, path: Path, display_path: str) -> ToolOutput:
    try:
        argv = ["pdftotext", "-layout", str(path), "-"]
        done = await site.execute(argv, timeout=60, limit=MAX_IN_MEMORY_BYTES)
    except WorkspaceError as error:
        raise ToolError(
            f"{display_path} is a PDF, this model reads text only, and pdftotext is not installed"
        ) from error
    if done.exit_code != 0 or not done.stdout.strip():
        why = done.stderr.decode(errors="replace").strip() or "there is no text in it"
        raise ToolError(f"no text could be extracted from {display_path}: {why}")
    text = done.stdout.decode(errors="replace")
    return ToolOutput(text[: 2 * MAX_CHARS], display=f"Read the text of {display_path} (PDF)")
