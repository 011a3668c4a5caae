"""Changes worth a try: a small model names a wrong line and writes it right.

    line      "Wrong: <a line of the file>\\nRight: <that line, written anew>"
    function  the function around a favoured line, written anew after its own first line

Every question has the same beginning (instruction, code, failing check), so that only the few
tokens of an answer cost time. Which change is tried when is repair.py's to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from treadle.models.embedded import evidence, prompt
from treadle.models.embedded.grammar import literal

LINE_TOKENS = 80
FUNCTION_TOKENS = 200
SOURCE_CHARS = 2_400
CHANCE = 0.9
COMMENTS = ["  #", " # ", "  //"]

INSTRUCTION = (
    prompt.turn(
        "system",
        "You repair programs. One line of the code is wrong. "
        "Copy the wrong line, then write it correctly.",
    )
    + prompt.turn(
        "user",
        "Code:\ndef last(items):\n    return items[len(items)]\n"
        "Check:\nFAIL: test_last\nIndexError: list index out of range",
    )
    + prompt.turn(
        "assistant", "Wrong: return items[len(items)]\nRight: return items[len(items) - 1]"
    )
    + prompt.turn(
        "user",
        'Code:\ndef greet(name):\n    return "Hello " + name\n'
        'Check:\nFAIL: test_greet\nself.assertEqual(greet("Ann"), "Hello, Ann!")\n'
        "AssertionError: 'Hello Ann' != 'Hello, Ann!'",
    )
    + prompt.turn(
        "assistant",
        'Wrong: return "Hello " + name\nRight: return "Hello, " + name + "!"',
    )
)

_DEFINITION = re.compile(r"^(\s*)(?:async\s+)?(?:def|function|func|fn)\s+(\w+)")
_WORD = re.compile(r"[A-Za-z]+")


class Line(msgspec.Struct, frozen=True):
    """One line of a suspected file, and the function that it stands in."""

    path: str
    number: int  # from 1
    text: str
    function: str = ""

    @property
    def bare(self) -> str:
        return self.text.strip()

    @property
    def indent(self) -> str:
        return self.text[: len(self.text) - len(self.text.lstrip())]

    def __str__(self) -> str:
        return f"{self.number} of {self.path}"


class Change(msgspec.Struct, frozen=True):
    """A file as it would be."""

    path: str
    source: str


def suspects(sources: Mapping[str, str]) -> list[Line]:
    """Every line that may be the wrong one."""
    found: list[Line] = []
    for path, source in sources.items():
        if evidence.is_test(path):
            continue
        function, depth = "", -1
        for number, text in enumerate(source.splitlines(), 1):
            line = Line(path, number, text)
            if line.bare and len(line.indent) <= depth:
                function, depth = "", -1
            if definition := _DEFINITION.match(text):
                function, depth = definition[2], len(definition[1])
            if _may_be_wrong(line.bare):
                found.append(msgspec.structs.replace(line, function=function))
    return found


def _may_be_wrong(bare: str) -> bool:
    plain = ("#", "//", '"""', "'''", "import ", "from ", "class ", "@", "fi", "done", "esac")
    return len(bare) > 3 and not bare.startswith(plain) and bare not in ("else:", "try:", "else")


def circles(lines: Sequence[Line], failing: str) -> tuple[list[Line], list[Line], list[Line]]:
    """The lines where it broke, those of functions that the check speaks of, and all of them."""
    words = set(_WORD.findall(failing.replace("_", " "))) | set(re.findall(r"\w+", failing))
    broke = [line for line in lines if line.bare in failing.splitlines()]
    near = [line for line in lines if line.function in words]
    return broke, near, list(lines)


def question(sources: Mapping[str, str], failing: str) -> str:
    """The beginning that all questions about these sources share."""
    code = "\n".join(
        text.strip("\n") for path, text in sources.items() if not evidence.is_test(path)
    )
    said = f"Code:\n{prompt.clipped(code, SOURCE_CHARS)}\nCheck:\n{failing}"
    return INSTRUCTION + prompt.turn("user", said)


def line_options(among: Sequence[Line], *, chance: float, seed: int) -> dict[str, Any]:
    """How to ask for one of these lines, and for what it should be."""
    ways = " | ".join(literal(text) for text in dict.fromkeys(line.bare for line in among))
    rule = f'root ::= "Wrong: " ({ways}) "\\nRight: " [^\\n]+ "\\n"'
    # Left to itself it explains the line in a comment that is longer than the line.
    limits = {"n_predict": LINE_TOKENS, "stop": COMMENTS}
    return {"grammar": rule, "temperature": chance, "seed": seed, **limits}


def read_line(text: str) -> tuple[str, str]:
    """The line that was called wrong, and what it should be."""
    wrong, _, written = text.partition("\nRight: ")
    return wrong.removeprefix("Wrong: "), written.strip()


def with_line(source: str, line: Line, written: str) -> Change:
    lines = source.splitlines(keepends=True)
    lines[line.number - 1] = f"{line.indent}{written}\n"
    return Change(line.path, "".join(lines))


def function_around(source: str, line: Line) -> tuple[int, int] | None:
    """First and last line, from 1, of the function that a line stands in."""
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


def function_start(source: str, first: int) -> str:
    """What the model goes on from when it writes a function anew."""
    return f"Corrected function:\n{source.splitlines()[first - 1]}\n"


def function_options(source: str, first: int, *, chance: float, seed: int) -> dict[str, Any]:
    """How to ask for a function's body: lines that stand at least as deep as it does."""
    rule = f'root ::= ({literal(_depth_of_body(source, first))} [^\\n]+ "\\n" "\\n"?)+'
    return {"grammar": rule, "temperature": chance, "seed": seed, "n_predict": FUNCTION_TOKENS}


def _depth_of_body(source: str, first: int) -> str:
    for text in source.splitlines()[first:]:
        if text.strip():
            return text[: len(text) - len(text.lstrip())]
    return "    "


def with_function(source: str, path: str, first: int, last: int, body: str) -> Change | None:
    """The source with this body behind the function's first line; None if it was not finished."""
    lines = source.splitlines()
    depth = _depth_of_body(source, first)
    others = {match[2] for line in lines if (match := _DEFINITION.match(line))}
    kept: list[str] = []
    for text in body.splitlines():
        if text.strip() and not text.startswith(depth):
            break
        if (inner := _DEFINITION.match(text)) and inner[2] in others:
            break  # it goes on with the next function, as if that were part of this one
        kept.append(text.rstrip())
    while kept and not kept[-1]:
        kept.pop()
    if not kept or not body.endswith("\n"):
        return None
    return Change(path, "\n".join([*lines[:first], *kept, *lines[last:]]) + "\n")
