"""Questions to a small model about a wrong line, and the changes that its answers mean.

    line      "Wrong: <a line of the file>\\nRight: <the corrected line>"
    function  the function around a line, rewritten after its own first line

Every question starts with the same text (instruction, code, failing check), so that only the few
tokens of an answer take time. repair.py decides which change is tried when.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from treadle.models.embedded import prompt_text as prompt
from treadle.models.embedded.aids import check_output
from treadle.models.embedded.grammar import quote_literal

LINE_TOKENS = 80
FUNCTION_TOKENS = 200
SOURCE_CHARS = 2_400
RETRY_TEMPERATURE = 0.9
COMMENT_STOPS = ["  #", " # ", "  //"]

INSTRUCTION = (
    prompt.format_turn(
        "system",
        "You repair programs. One line of the code is wrong. "
        "Copy the wrong line, then write it correctly.",
    )
    + prompt.format_turn(
        "user",
        "Code:\ndef last(items):\n    return items[len(items)]\n"
        "Check:\nFAIL: test_last\nIndexError: list index out of range",
    )
    + prompt.format_turn(
        "assistant", "Wrong: return items[len(items)]\nRight: return items[len(items) - 1]"
    )
    + prompt.format_turn(
        "user",
        'Code:\ndef greet(name):\n    return "Hello " + name\n'
        'Check:\nFAIL: test_greet\nself.assertEqual(greet("Ann"), "Hello, Ann!")\n'
        "AssertionError: 'Hello Ann' != 'Hello, Ann!'",
    )
    + prompt.format_turn(
        "assistant", 'Wrong: return "Hello " + name\nRight: return "Hello, " + name + "!"'
    )
)

_DEFINITION = re.compile(r"^(\s*)(?:async\s+)?(?:def|function|func|fn)\s+(\w+)")
_WORD = re.compile(r"[A-Za-z]+")


class SourceLine(msgspec.Struct, frozen=True):
    """One line of a suspected file, and the function around it."""

    path: str
    number: int  # from 1
    text: str
    function: str = ""

    @property
    def stripped(self) -> str:
        return self.text.strip()

    @property
    def indent(self) -> str:
        return self.text[: len(self.text) - len(self.text.lstrip())]

    def __str__(self) -> str:
        return f"{self.number} of {self.path}"


class FileRewrite(msgspec.Struct, frozen=True):
    """The new source of a file; `line` is the line that it replaces, None for a function."""

    path: str
    source: str
    location: str
    line: SourceLine | None = None


def list_suspect_lines(sources: Mapping[str, str]) -> list[SourceLine]:
    """Every line that may be the wrong one."""
    suspects: list[SourceLine] = []
    for path, source in sources.items():
        if check_output.is_test_file(path):
            continue
        function, depth = "", -1
        for number, text in enumerate(source.splitlines(), 1):
            line = SourceLine(path, number, text)
            if line.stripped and len(line.indent) <= depth:
                function, depth = "", -1
            if definition := _DEFINITION.match(text):
                function, depth = definition[2], len(definition[1])
            if _may_be_wrong(line.stripped):
                suspects.append(msgspec.structs.replace(line, function=function))
    return suspects


def _may_be_wrong(stripped: str) -> bool:
    plain = ("#", "//", '"""', "'''", "import ", "from ", "class ", "@", "fi", "done", "esac")
    if len(stripped) <= 3 or stripped.startswith(plain):
        return False
    return stripped not in ("else:", "try:", "else")


def group_suspect_lines(
    lines: Sequence[SourceLine], failure: str
) -> tuple[list[SourceLine], list[SourceLine], list[SourceLine]]:
    """The lines in the failure's output, those of functions that it names, and all lines."""
    words = set(_WORD.findall(failure.replace("_", " "))) | set(re.findall(r"\w+", failure))
    quoted = [line for line in lines if line.stripped in failure.splitlines()]
    in_named_functions = [line for line in lines if line.function in words]
    return quoted, in_named_functions, list(lines)


def build_question(sources: Mapping[str, str], failure: str) -> str:
    """The start that all questions about these sources share."""
    is_test = check_output.is_test_file
    code = "\n".join(text.strip("\n") for path, text in sources.items() if not is_test(path))
    text = f"Code:\n{prompt.cut_middle(code, SOURCE_CHARS)}\nCheck:\n{failure}"
    return INSTRUCTION + prompt.format_turn("user", text)


def build_line_options(
    lines: Sequence[SourceLine], *, temperature: float, seed: int
) -> dict[str, Any]:
    """The options of a completion that names one of these lines and corrects it."""
    texts = dict.fromkeys(line.stripped for line in lines)
    ways = " | ".join(quote_literal(text) for text in texts)
    rule = f'root ::= "Wrong: " ({ways}) "\\nRight: " [^\\n]+ "\\n"'
    # Without these stops the model explains the line in a comment longer than the line.
    limits = {"n_predict": LINE_TOKENS, "stop": COMMENT_STOPS}
    return {"grammar": rule, "temperature": temperature, "seed": seed, **limits}


def parse_line_answer(text: str) -> tuple[str, str]:
    """The wrong line, and its correction."""
    wrong, _, right = text.partition("\nRight: ")
    return wrong.removeprefix("Wrong: "), right.strip()


def replace_line(source: str, line: SourceLine, replacement: str) -> FileRewrite:
    lines = source.splitlines(keepends=True)
    lines[line.number - 1] = f"{line.indent}{replacement}\n"
    return FileRewrite(line.path, "".join(lines), f"line {line}", line)


def find_function(source: str, line: SourceLine) -> tuple[int, int] | None:
    """First and last line, from 1, of the function around a line."""
    lines = source.splitlines()
    for first in range(line.number, 0, -1):
        definition = _DEFINITION.match(lines[first - 1])
        if definition is None:
            continue
        depth = len(definition[1])
        last = first
        for number in range(first + 1, len(lines) + 1):
            text = lines[number - 1]
            if text.strip() and len(text) - len(text.lstrip()) <= depth:
                break
            if text.strip():
                last = number
        return (first, last) if line.number <= last else None
    return None


def start_function(source: str, first: int) -> str:
    """The start of the model's reply when it rewrites a function."""
    return f"Corrected function:\n{source.splitlines()[first - 1]}\n"


def build_function_options(
    source: str, first: int, *, temperature: float, seed: int
) -> dict[str, Any]:
    """The options of a completion that writes a function's body, with at least its indent."""
    rule = f'root ::= ({quote_literal(_find_body_indent(source, first))} [^\\n]+ "\\n" "\\n"?)+'
    return {"grammar": rule, "temperature": temperature, "seed": seed, "n_predict": FUNCTION_TOKENS}


def _find_body_indent(source: str, first: int) -> str:
    for text in source.splitlines()[first:]:
        if text.strip():
            return text[: len(text) - len(text.lstrip())]
    return "    "


def replace_function(
    source: str, path: str, first: int, last: int, body: str
) -> FileRewrite | None:
    """The source with this body after the function's first line; None if the body was cut."""
    lines = source.splitlines()
    indent = _find_body_indent(source, first)
    others = {match[2] for line in lines if (match := _DEFINITION.match(line))}
    new_lines: list[str] = []
    for text in body.splitlines():
        if text.strip() and not text.startswith(indent):
            break
        if (inner := _DEFINITION.match(text)) and inner[2] in others:
            break  # the model continues with the next function
        new_lines.append(text.rstrip())
    while new_lines and not new_lines[-1]:
        new_lines.pop()
    if not new_lines or not body.endswith("\n"):
        return None
    new_source = "\n".join([*lines[:first], *new_lines, *lines[last:]]) + "\n"
    return FileRewrite(path, new_source, f"function at line {first} of {path}")
