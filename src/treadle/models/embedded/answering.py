"""How a weak model's answer begins: with what was really found, in the engine's own words.

Left alone, the tiniest models talk past the result in front of them. Here the result itself
opens the answer, and where a judgement is wanted the model goes on from there, one sentence.
Pure functions over the present turn; model.py does the asking.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import ToolResultItem
from treadle.models.embedded import evidence, prompt
from treadle.models.embedded.toolkit import Offer

MOST_NAMES = 24
FOUND_CHARS = 900
SHOWN_LINES = 12
TITLE_CHARS = 48
GIST_CHARS = 240

_NOISE = re.compile(
    r"^\W*(total \d+|exit(ed)?\b.*\bcode\b.*|\.{1,2}/?|\.git/?|.* is empty\.?)\W*$", re.IGNORECASE
)

_PROSE = re.compile(r"(?i)(^|/)(readme[^/]*|[^/]*\.(md|txt|rst))$")
_ORNAMENT = re.compile(r"^(!?\[.*\]\(.*\)|<.*>|```.*)$")  # badges, pictures, markup


class Opening(msgspec.Struct, frozen=True):
    """What the model reads, how its answer begins, and whether it goes on by itself."""

    asked: str
    begun: str
    goes_on: bool


def opening(
    said: str, calls: Sequence[ToolCall], results: Sequence[ToolResultItem], offers: Sequence[Offer]
) -> Opening:
    """The answer's beginning for what was found in this turn."""
    found: list[str] = []
    told: list[str] = []
    goes_on = False
    for call, result in zip(calls, results, strict=False):
        word, given = _understood(call, offers)
        if result.is_error:
            told.append(f"That did not work: {_line(result.text)}")
            continue
        shown, sentence, invites = _found(word, given, result.text)
        found.append(shown)
        told.append(sentence)
        goes_on = goes_on or invites
    begun = " ".join(text for text in told if text) or ("" if goes_on else "It is done.")
    if goes_on:
        begun = f"{begun} {_invitation(calls, offers)}".strip()
    return Opening("\n\n".join([*found, said]), begun, goes_on)


def _understood(call: ToolCall, offers: Sequence[Offer]) -> tuple[str, dict[str, str]]:
    arguments = call.arguments or {}
    for offer in offers:
        if offer.tool == call.name and (given := offer.recall(arguments)) is not None:
            return offer.word, given
    return call.name, {}


def _found(word: str, given: dict[str, str], text: str) -> tuple[str, str, bool]:
    """A result for the model to read, a sentence for the person, and whether to go on."""
    path = given.get("path", "")
    match word:
        case "ls" | "glob":
            names = _names(text)
            where = "here" if path in ("", ".") else f"in {path}"
            if not names:
                return "Files: none", f"There are no files {where}.", False
            return f"Files: {names}", f"The files {where} are {names}.", word == "ls"
        case "read":
            shown = f"{path}:\n{prompt.clipped(text.strip(), FOUND_CHARS)}"
            quoted = _gist(text) if _PROSE.search(path) else ""
            return shown, f"{path} says: “{quoted}”" if quoted else "", True
        case "edit" | "write":
            return "", f"I changed {path}.", False
        case _:
            lines = [line for line in text.strip().splitlines() if not _NOISE.match(line)]
            if not lines:
                return "", "It printed nothing.", False
            more = f"\n… {len(lines) - SHOWN_LINES} more" if len(lines) > SHOWN_LINES else ""
            return "", "\n".join(["This is what I found:", *lines[:SHOWN_LINES]]) + more, False


def _invitation(calls: Sequence[ToolCall], offers: Sequence[Offer]) -> str:
    words = [_understood(call, offers) for call in calls]
    if any(word == "ls" for word, _ in words):
        return "This folder is"
    path = words[-1][1].get("path", "It")
    return f"{path} is"


def _gist(text: str) -> str:
    """The title and the first sentence of a README."""
    title = ""
    for paragraph in re.split(r"\n\s*\n|\n(?=[=-]{3,}\s*$)", evidence.without_numbers(text)):
        lines = [line.strip().strip("#=-*").strip() for line in paragraph.splitlines()]
        said = " ".join(line for line in lines if line and not _ORNAMENT.match(line))
        if not said:
            continue
        if not title and len(said) <= TITLE_CHARS:
            title = said.rstrip(".:")
            continue
        first = re.split(r"(?<=[.!?])\s", said, maxsplit=1)[0]
        return f"{title}: {first}"[:GIST_CHARS] if title else first[:GIST_CHARS]
    return title


def _names(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    names = [line for line in lines if line and not _NOISE.match(line)]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _line(text: str) -> str:
    lines = text.strip().splitlines()
    return (lines[0] if lines else "no reason was given")[:200]
