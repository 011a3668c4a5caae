"""The frontmatter of a Markdown file: a few lines of `key: value` between two lines of dashes.

    ---
    name: reviewer
    description: Reads a change and reports what is wrong with it.
    tools: read, grep, glob
    ---
    The body.

Supports the part of YAML that is common there: plain and quoted strings, lists in brackets or with
dashes, over several lines, blocks, comments. What is no YAML but common is read, too: a colon in a
value, commas in parentheses, tags such as <example> below a value. It cannot run code or create
objects.
"""

from __future__ import annotations

import re
import sys

from treadle.lib.text.lazy_regex import compile_lazily

Frontmatter = dict[str, str | list[str]]

_KEY = compile_lazily(r"""^([A-Za-z][\w-]*|\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*')\s*:\s*(.*)$""")
_BLOCK_LINE = compile_lazily(r"[ \t]|- |\]|<|\s*$")  # belongs to the key above it
_TAG = compile_lazily(r"<(\w+)>")
_BLOCK_HEAD = compile_lazily(r"([|>])[+-]?\d?[+-]?")
_COMMENT = compile_lazily(r"#(\s|$)")
_LATE_COMMENT = compile_lazily(r"\s+#.*$")
_QUOTED = compile_lazily(r"""\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'""")
_LIST_PART = compile_lazily(
    r"""(?:\s*(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*')\s*(?=,|$)|\([^()]*\)|[^,(]|\()+"""
)


_ESCAPE = compile_lazily(r"\\(x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8}|.)", re.DOTALL)
# What a character after a backslash means; any other stays as it is written.
_ESCAPED = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r",
    "e": "\x1b", " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0",
    "L": "\u2028", "P": "\u2029",
}  # fmt: skip


class FrontmatterError(ValueError):
    """What is wrong with the frontmatter of a file, and on which line."""


def parse_frontmatter(text: str) -> tuple[Frontmatter, str]:
    """The frontmatter and the body; a file without frontmatter is all body."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return {}, text
    lines = text.split("\n")
    try:
        end = next(n for n, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "..."))
    except StopIteration:
        raise FrontmatterError("line 1: the frontmatter has no closing ---") from None
    return _parse_lines(lines[1:end]), "\n".join(lines[end + 1 :]).lstrip("\n")


def _parse_lines(lines: list[str]) -> Frontmatter:
    head: Frontmatter = {}
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pair = _KEY.match(line)
        if pair is None:
            raise FrontmatterError(f"line {number + 1}: {line.strip()!r} is not `key: value`")
        key, value = _unquote(pair.group(1)), pair.group(2).strip()
        start = number
        while number < len(lines) and _BLOCK_LINE.match(lines[number]):
            number = _find_tag_end(lines, number) + 1
        head[key] = _parse_value(value, lines[start:number])
    return head


def _find_tag_end(lines: list[str], number: int) -> int:
    """The line that closes a tag which is opened on this line; this line, if there is none."""
    tag = _TAG.match(lines[number])
    end = f"</{tag[1]}>" if tag is not None else ""
    return next((at for at in range(number, len(lines)) if end in lines[at]), number)


def _parse_value(value: str, block: list[str]) -> str | list[str]:
    if head := _BLOCK_HEAD.fullmatch(value):
        return _read_block(block, is_folded=head[1] == ">")
    inside = [line.strip() for line in block if line.strip() and not _COMMENT.match(line.strip())]
    if not _strip_comment(value) and inside and inside[0].startswith("- "):
        return _read_items(inside)
    text = " ".join([_strip_comment(value), *map(_strip_comment, inside)]).strip()
    is_list = text.startswith("[") and text.endswith("]")
    if is_list and not set("[]") & set(_QUOTED.sub("", text[1:-1])):
        return [_unquote(part) for part in _split_at_commas(text[1:-1])]
    return _unquote(text)


def _read_block(block: list[str], *, is_folded: bool) -> str:
    """The lines after `|` or `>`, without their common indentation."""
    from textwrap import dedent

    text = dedent("\n".join(block)).strip("\n")
    if not is_folded:
        return text
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n".join(" ".join(one.split("\n")) for one in paragraphs)


def _read_items(lines: list[str]) -> list[str]:
    """The entries after dashes; a line without one continues the entry above it."""
    items: list[str] = []
    for line in lines:
        if line.startswith("- "):
            items.append(_strip_comment(line[2:]))
        else:
            items[-1] += f" {_strip_comment(line)}"
    return [_unquote(item) for item in items]


def _strip_comment(text: str) -> str:
    """The text before ` # `, unless that is inside of quotes."""
    text = text.strip()
    if not text or text[0] in "\"'":
        end = _QUOTED.match(text)
        return end[0] if end is not None and _COMMENT.match(text[end.end() :].strip()) else text
    return "" if _COMMENT.match(text) else _LATE_COMMENT.sub("", text)


def _split_at_commas(text: str) -> list[str]:
    """The parts between commas that are in no quotes and no parentheses."""
    parts = [one.strip() for one in _LIST_PART.findall(text)]
    return [part for part in parts if part]


def _unquote(value: str) -> str:
    value = value.strip()
    if len(value) < 2 or value[0] != value[-1] or value[0] not in "\"'":
        return value
    if value[0] == "'":
        return value[1:-1].replace("''", "'")
    plain = _ESCAPE.sub(_decode_escape, value[1:-1]) if "\\" in value else value[1:-1]
    # An emoji may be written as two escapes, as in JSON.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _decode_escape(escape: re.Match[str]) -> str:
    code = escape[1]
    if len(code) == 1:
        return _ESCAPED.get(code, escape[0])
    number = int(code[1:], 16)
    return chr(number) if number <= sys.maxunicode else escape[0]


def parse_list(value: str | list[str] | None) -> list[str] | None:
    """A list that may also be written with commas."""
    if value is None or isinstance(value, list):
        return value
    return _split_at_commas(value)
