"""The patch format that OpenAI's models write: parsed, and applied to text.

    *** Begin Patch
    *** Add File: path          every line of the new file with a + before it
    *** Update File: path       chunks: @@ a line to go to, then lines with " ", "-" or "+"
    *** Move to: path           below Update File: rename the file
    *** Delete File: path
    *** End Patch

Strict in its headers, which name the files that the policy decides on; lenient in
context lines: spaces at their ends, and typography. Pure; used by `apply_patch`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Literal

import msgspec

from treadle.core.errors import ToolError
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.tools.builtin.file_text import TYPOGRAPHY, format_numbered_lines

# For models whose provider holds them to it (Lark). It is stricter than the parser.
PATCH_GRAMMAR = r"""
start: "*** Begin Patch" LF file+ "*** End Patch" LF?
file: added_file | deleted_file | updated_file
added_file: "*** Add File: " text LF ("+" text? LF)+
deleted_file: "*** Delete File: " text LF
updated_file: "*** Update File: " text LF ("*** Move to: " text LF)? change*
change: ("@@" | "@@ " text | ("+" | "-" | " ") text? | "*** End of File") LF
text: /.+/
%import common.LF
""".lstrip()
BEGIN, END, END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
FILE_HEADER = compile_lazily(r"\*\*\* (?P<kind>Add|Update|Delete) File: (?P<path>.+)")
MOVE_HEADER = compile_lazily(r"\*\*\* Move to: (?P<path>.+)")
Normalizer = Callable[[str], str]
_LINE_NUMBERS = compile_lazily(r"-\d+(,\d+)? \+\d+(,\d+)? @@.*")


class Chunk(msgspec.Struct, frozen=True):
    """Lines with their marks (space, - or +), below the lines that `anchors` name."""

    anchors: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]
    at_end: bool = False

    @property
    def old_lines(self) -> list[str]:
        return [line for mark, line in self.lines if mark != "+"]

    def apply_to(self, file_lines: Sequence[str]) -> list[str]:
        """What the old lines become. Context that matched loosely stays as it is in the file."""
        old = iter(file_lines)
        out: list[str] = []
        for mark, line in self.lines:
            if mark == "+":
                out.append(line)
            else:
                file_line = next(old)
                out += [file_line] if mark == " " else []
        return out


class FilePatch(msgspec.Struct, frozen=True):
    kind: Literal["Add", "Update", "Delete"]
    path: str
    content: str = ""
    chunks: tuple[Chunk, ...] = ()
    moved_to: str = ""


def parse_patch(text: str) -> list[FilePatch]:
    """The files of a patch; ToolError says which line is not understood."""
    lines = [line.removesuffix("\r") for line in text.strip("\n").split("\n")]
    begin = next((at for at, line in enumerate(lines) if line.rstrip() == BEGIN), None)
    if begin is None:
        raise ToolError(f"a patch begins with the line `{BEGIN}`")
    end = next((at for at in range(begin, len(lines)) if lines[at].rstrip() == END), None)
    if end is None:
        # It may have been cut off, and half of a patch must not be applied.
        raise ToolError(f"the patch does not end with the line `{END}`; it may have been cut off")
    files: list[FilePatch] = []
    at = begin + 1
    while at < end:
        header = FILE_HEADER.fullmatch(lines[at])
        if header is None:
            if lines[at].strip():
                raise _make_syntax_error(lines, at, "a line `*** Add|Update|Delete File: path`")
            at += 1
            continue
        stop = next((n for n in range(at + 1, end) if FILE_HEADER.fullmatch(lines[n])), end)
        files.append(_parse_file(header["kind"], header["path"].strip(), lines, at + 1, stop))
        at = stop
    if not files:
        raise ToolError("the patch names no file")
    return files


def _parse_file(kind: str, path: str, lines: Sequence[str], at: int, stop: int) -> FilePatch:
    if kind == "Delete":
        for number in range(at, stop):
            if lines[number].strip():
                raise _make_syntax_error(lines, number, "nothing below Delete File")
        return FilePatch("Delete", path)
    if kind == "Add":
        added: list[str] = []
        for number in range(at, stop):
            if lines[number].startswith("+"):
                added.append(lines[number][1:] + "\n")
            elif lines[number].strip():
                raise _make_syntax_error(lines, number, "lines that begin with `+`")
        return FilePatch("Add", path, content="".join(added))
    moved = MOVE_HEADER.fullmatch(lines[at]) if at < stop else None
    chunks = _parse_chunks(lines, at + 1 if moved else at, stop)
    if not chunks and not moved:
        raise ToolError(f"the patch has no changes for {path}")
    target = moved["path"].strip() if moved else ""
    return FilePatch("Update", path, chunks=chunks, moved_to=target)


def _parse_chunks(lines: Sequence[str], at: int, stop: int) -> tuple[Chunk, ...]:
    chunks: list[Chunk] = []
    anchors: list[str] = []
    marked: list[tuple[str, str]] = []

    def close(at_end: bool = False) -> None:
        while marked and marked[-1][0] == "":
            marked.pop()  # an empty line before the next header only separates
        if marked:
            body = tuple([(mark or " ", line) for mark, line in marked])
            chunks.append(Chunk(tuple(anchors), body, at_end))
            anchors.clear()
            marked.clear()

    for number in range(at, stop):
        line = lines[number]
        if line.rstrip() == END_OF_FILE:
            close(at_end=True)
        elif line.startswith("@@"):
            close()
            anchor = line[2:].strip()
            if anchor and not _LINE_NUMBERS.fullmatch(anchor):
                anchors.append(anchor.removesuffix("@@").rstrip())
        elif line[:1] in ("", " ", "-", "+"):
            marked.append((line[:1], line[1:]))
        else:
            expected = "a line that begins with a space, `-`, `+` or `@@`"
            raise _make_syntax_error(lines, number, expected)
    close()
    return tuple(chunks)


def apply_file_patch(text: str, patch: FilePatch) -> str:
    """The text after all chunks. ToolError names the chunk that does not fit, and the lines that
    are there instead."""
    ends_with_newline = text.endswith("\n") or not text
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    out: list[str] = []
    done, index = 0, LineIndex(lines)
    for number, chunk in enumerate(patch.chunks, start=1):
        start = done
        for anchor in chunk.anchors:
            start = _find_anchor(lines, anchor, start, patch.path)
        at = _find_chunk(index, chunk, start)
        if at is None and start != done and not chunk.at_end:
            # The anchor may be repeated as context.
            at = _find_chunk(index, chunk, max(done, start - 1))
        if at is None:
            raise ToolError(_describe_mismatch(lines, chunk, number, patch))
        end = at + len(chunk.old_lines)
        out += [*lines[done:at], *chunk.apply_to(lines[at:end])]
        done = end
    out += lines[done:]
    return "\n".join(out) + ("\n" if ends_with_newline and out else "")


def _find_anchor(lines: Sequence[str], anchor: str, start: int, path: str) -> int:
    for normalize in _NORMALIZERS:
        for number in range(start, len(lines)):
            if normalize(lines[number]) == normalize(anchor) or (
                normalize is _NORMALIZERS[-1] and normalize(anchor) in normalize(lines[number])
            ):
                return number + 1
    raise ToolError(f"{path} has no line `{anchor}` (@@); nothing was changed")


def _find_chunk(index: LineIndex, chunk: Chunk, start: int) -> int | None:
    old = chunk.old_lines
    if not old:
        # Only new lines: after the anchor, or at the end of the file.
        return start if chunk.anchors else index.line_count
    last = index.line_count - len(old)
    if last < start:
        return None
    for normalize in _NORMALIZERS:
        if chunk.at_end and index.find(normalize, old, last) is not None:
            return last
        if (at := index.find(normalize, old, start)) is not None:
            return at
    return None


class LineIndex:
    """The lines of a file as one text, so that a search for several lines is linear."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines, self.line_count = lines, len(lines)
        self._normalized_texts: dict[Normalizer, tuple[str, list[int]]] = {}

    def find(self, normalize: Normalizer, wanted: Sequence[str], start: int) -> int | None:
        """The first line, from `start` on, at which lines like the wanted ones begin."""
        text, starts = self._normalized_text(normalize)
        at = text.find(_join_lines(map(normalize, wanted)), starts[start])
        return bisect_left(starts, at) if at >= 0 else None

    def _normalized_text(self, normalize: Normalizer) -> tuple[str, list[int]]:
        """All normalized lines as one text, and where in it each line begins."""
        if normalize not in self._normalized_texts:
            lines = [normalize(line) for line in self._lines]
            starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
            self._normalized_texts[normalize] = _join_lines(lines), starts
        return self._normalized_texts[normalize]


def _join_lines(lines: Iterable[str]) -> str:
    return "\n".join(["", *lines, ""])


def _normalize_typography(line: str) -> str:
    return line.strip().translate(TYPOGRAPHY)


_NORMALIZERS: tuple[Normalizer, ...] = (str, str.rstrip, _normalize_typography)  # exact first


def _describe_mismatch(lines: Sequence[str], chunk: Chunk, number: int, patch: FilePatch) -> str:
    from treadle.tools.builtin.files.near_match import find_nearest_lines

    count = len(patch.chunks)
    which = f"chunk {number} of {count}" if count > 1 else "the chunk"
    problem = f"{which} for {patch.path} does not fit; nothing was changed."
    window = find_nearest_lines(lines, chunk.old_lines)
    if window is None:
        return f"{problem} Its lines are not in the file (any more); read the file again."
    shown = "\n".join(format_numbered_lines(lines, *window))
    return f"{problem} The nearest lines are these:\n{shown}"


def _make_syntax_error(lines: Sequence[str], at: int, expected: str) -> ToolError:
    return ToolError(f"line {at + 1} of the patch is `{lines[at][:100]}`; expected {expected}")
