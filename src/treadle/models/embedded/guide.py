"""What a model may do next: fewer choices, so that the choice is right more often.

For a weak one the examples nearest to the request vote for the calls that come into question,
and names in a call are taken from the request's own words (grounding.py). After a result it
answers, except that a question about a whole folder reads its README first. Read off the
transcript, like everything: nothing is remembered between requests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import AssistantItem, ToolResultItem, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.models.embedded.examples import BANK, features, nearest
from treadle.models.embedded.grounding import files_named, grounded
from treadle.models.embedded.toolkit import Offer

VOTERS = 4
SURE = 0.3  # below this no example is like the request, and everything stays possible
SURE_OF_FILE = 0.2
EXEMPLIFIED = frozenset(example.word for example in BANK)
CLOSE = 0.75  # of the best vote

_ABOUT = re.compile(
    r"\b(what|which|describe|explain|about|summar\w+|purpose|overview)\b.*"
    r"\b(folder|directory|project|repo\w*|code ?base|program|app)\b"
    r"|\b(folder|directory|project|repo\w*|code ?base)\b.*\b(about|is|does|for)\b",
    re.IGNORECASE | re.DOTALL,
)
_SEARCHING = re.compile(
    r"\b(where|which|search|find|mentions?|uses?|used|imports?)\b", re.IGNORECASE
)
_README = re.compile(r"(?im)^(?:\S*[\s/])?(README(?:\.\w+)?)\s*$")


class Choice(msgspec.Struct, frozen=True):
    """The calls that come into question. A `due` call is the only one: nobody need be asked."""

    offers: tuple[Offer, ...]
    may_answer: bool = True
    due: tuple[Offer, dict[str, str]] | None = None


class Situation(msgspec.Struct, frozen=True):
    """The present turn: what was asked, what was called since, what came of it."""

    said: str
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResultItem, ...]


def situation(transcript: Transcript) -> Situation:
    calls: list[ToolCall] = []
    results: list[ToolResultItem] = []
    said = ""
    for place in range(len(transcript) - 1, -1, -1):
        item = transcript[place]
        if isinstance(item, UserItem):
            said = item.text
            break
        if isinstance(item, AssistantItem):
            calls[:0] = item.calls
        elif isinstance(item, ToolResultItem):
            results.insert(0, item)
    return Situation(said, tuple(calls), tuple(results))


def choice(transcript: Transcript, offers: Sequence[Offer]) -> Choice:
    """What comes into question now."""
    now = situation(transcript)
    if now.results:
        return Choice((), due=_readme(now, offers))
    if meant := _meant(now.said, offers):
        return Choice(meant)
    return _voted(now.said, tuple(offers))


def _meant(said: str, offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Tools that no example knows, if the request speaks of what they do."""
    words = features(said).keys()
    return tuple(
        offer
        for offer in offers
        if offer.word not in EXEMPLIFIED and words & features(f"{offer.word} {offer.about}").keys()
    )


def narrowed(transcript: Transcript, offers: Sequence[Offer]) -> Choice:
    """What comes into question for a model that chooses by itself.

    Asked about a file that it has not looked at, it must neither answer nor search for its name.
    """
    now = situation(transcript)
    if now.calls or not files_named(now.said) or not any(one.word == "read" for one in offers):
        return Choice(tuple(offers))
    out = {"ls", "glob"} if _SEARCHING.search(now.said) else {"ls", "glob", "grep"}
    return Choice(tuple(one for one in offers if one.word not in out), may_answer=False)


def _voted(said: str, offers: tuple[Offer, ...]) -> Choice:
    named = bool(files_named(said))
    # With a file's name, something is to be done with that file; without one, it cannot be.
    out = ("", "ls", "glob") if named else ("read", "edit", "write")
    ranked = nearest(said, frozenset(offer.word for offer in offers))
    near = [pair for pair in ranked if pair[1].word not in out][:VOTERS]
    if not named and _ABOUT.search(said):
        near = [pair for pair in near if pair[1].word == "ls"] or near
    if not near or near[0][0] < (SURE_OF_FILE if named else SURE):
        # Like nothing known: a file is read, and anything else is a question to be answered.
        kept = tuple(offer for offer in offers if named and offer.word == "read")
        return Choice(tuple(grounded(offer, said) for offer in kept), may_answer=not kept)
    votes: dict[str, float] = {}
    for score, example in near:
        votes[example.word] = votes.get(example.word, 0.0) + score * score
    best = max(votes, key=lambda word: votes[word])
    if not best:
        return Choice(())
    chosen = {word for word, vote in votes.items() if word and vote >= CLOSE * votes[best]}
    kept = tuple(grounded(offer, said) for offer in offers if offer.word in chosen)
    return Choice(kept, may_answer=False, due=_only_one(kept))


def _only_one(offers: Sequence[Offer]) -> tuple[Offer, dict[str, str]] | None:
    """The call, if there is nothing left to choose."""
    if len(offers) != 1 or any(len(field.choices) != 1 for field in offers[0].fields):
        return None
    return offers[0], {field.short: field.choices[0] for field in offers[0].fields}


def _readme(now: Situation, offers: Sequence[Offer]) -> tuple[Offer, dict[str, str]] | None:
    """A listing that shows a README, for someone who wants to know what all this is."""
    last = now.results[-1]
    found = _README.search(last.text)
    if len(now.calls) != 1 or last.is_error or found is None or not _ABOUT.search(now.said):
        return None
    for offer in offers:
        if offer.word == "read" and offer.tool != now.calls[0].name:
            return offer, {"path": found[1]}
    return None


def since_change(transcript: Transcript) -> list[ToolCall]:
    """The calls of this turn after the last one that may have changed something."""
    calls = list(situation(transcript).calls)
    for place in range(len(calls) - 1, -1, -1):
        if not _LOOKING.search(calls[place].name.lower()) and not _looks(calls[place]):
            return calls[place + 1 :]
    return calls


_LOOKING = re.compile(r"^(read|view|grep|glob|ls|list|search|find)")


def _looks(call: ToolCall) -> bool:
    command = (call.arguments or {}).get("command", "")
    return isinstance(command, str) and command.startswith("ls ")
