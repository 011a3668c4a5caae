"""The frontmatter of a Markdown file: a few lines of `key: value` between two lines of dashes.

    ---
    name: reviewer
    description: Reads a change and reports what is wrong with it.
    tools: read, grep, glob
    ---
    The body.

Supports the small part of YAML that is common there: plain and quoted strings, lists in brackets
or with dashes, folded blocks. It cannot run code or create objects.
"""

from __future__ import annotations

from treadle.lib.text.lazy_regex import compile_lazily

Frontmatter = dict[str, str | list[str]]

_KEY = compile_lazily(r"^([A-Za-z][\w-]*)\s*:\s*(.*)$")
_BLOCK_LINE = compile_lazily(r"[ \t]|- |\s*$")  # belongs to the key above it


class FrontmatterError(ValueError):
    """What is wrong with the frontmatter of a file, and on which line."""


def parse_frontmatter(text: str) -> tuple[Frontmatter, str]:
    """The frontmatter and the body; a file without frontmatter is all body."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return {}, text
    lines = text.split("\n")
    try:
        end = next(n for n, line in enumerate(lines[1:], 1) if line.rstrip() == "---")
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
        key, value = pair.group(1), pair.group(2).strip()
        start = number
        while number < len(lines) and _BLOCK_LINE.match(lines[number]):
            number += 1
        head[key] = _parse_value(value, lines[start:number])
    return head


def _parse_value(value: str, block: list[str]) -> str | list[str]:
    inside = [line.strip() for line in block if line.strip()]
    if value in ("|", "|-", ">", ">-"):
        return ("\n" if value[0] == "|" else " ").join(inside)
    if not value and inside and all(line.startswith("- ") for line in inside):
        return [_unquote(line[2:]) for line in inside]
    if value.startswith("[") and value.endswith("]"):
        return [_unquote(part) for part in value[1:-1].split(",") if part.strip()]
    return _unquote(" ".join([value, *inside]).strip())


def _unquote(value: str) -> str:
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


def parse_list(value: str | list[str] | None) -> list[str] | None:
    """A list that may also be written with commas."""
    if value is None or isinstance(value, list):
        return value
    return [word.strip() for word in value.split(",") if word.strip()]
