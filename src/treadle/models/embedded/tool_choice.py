"""What a model may do next: fewer choices, so that the choice is right more often.

For a weak one the examples nearest to the request vote for the calls that come into question,
and names in a call are taken from the request's own words (argument_values.py). After a result it
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
from treadle.models.embedded.argument_values import constrain_arguments, find_request_files
from treadle.models.embedded.few_shot import EXAMPLES, extract_features, rank_examples
from treadle.models.embedded.small_toolset import SmallTool

MAX_VOTES = 4
MIN_SCORE = 0.3  # below this no example is like the request, and everything stays possible
MIN_FILE_SCORE = 0.2
TOOLS_WITH_EXAMPLES = frozenset(example.tool for example in EXAMPLES)
MIN_VOTE_SHARE = 0.75  # of the best vote

_FOLDER_QUESTION = re.compile(
    r"\b(what|which|describe|explain|about|summar\w+|purpose|overview)\b.*"
    r"\b(folder|directory|project|repo\w*|code ?base|program|app)\b"
    r"|\b(folder|directory|project|repo\w*|code ?base)\b.*\b(about|is|does|for)\b",
    re.IGNORECASE | re.DOTALL,
)
_SEARCH_REQUEST = re.compile(
    r"\b(where|which|search|find|mentions?|uses?|used|imports?)\b", re.IGNORECASE
)
_README = re.compile(r"(?im)^(?:\S*[\s/])?(README(?:\.\w+)?)\s*$")


class ToolChoice(msgspec.Struct, frozen=True):
    """The calls that come into question. A `due` call is the only one: nobody need be asked."""

    tools: tuple[SmallTool, ...]
    may_answer: bool = True
    forced_call: tuple[SmallTool, dict[str, str]] | None = None


class CurrentTurn(msgspec.Struct, frozen=True):
    """The present turn: what was asked, what was called since, what came of it."""

    user_text: str
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResultItem, ...]


def read_current_turn(transcript: Transcript) -> CurrentTurn:
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
    return CurrentTurn(said, tuple(calls), tuple(results))


def choose_tools(transcript: Transcript, tools: Sequence[SmallTool]) -> ToolChoice:
    """What comes into question now."""
    now = read_current_turn(transcript)
    if now.results:
        return ToolChoice((), forced_call=_find_readme_call(now, tools))
    if meant := _match_descriptions(now.user_text, tools):
        return ToolChoice(meant)
    return _vote_for_tools(now.user_text, tuple(tools))


def _match_descriptions(user_text: str, tools: Sequence[SmallTool]) -> tuple[SmallTool, ...]:
    """Tools that no example knows, if the request speaks of what they do."""
    words = extract_features(user_text).keys()
    return tuple(
        offer
        for offer in tools
        if offer.short_name not in TOOLS_WITH_EXAMPLES
        and words & extract_features(f"{offer.short_name} {offer.description}").keys()
    )


def narrow_tools(transcript: Transcript, tools: Sequence[SmallTool]) -> ToolChoice:
    """What comes into question for a model that chooses by itself.

    Asked about a file that it has not looked at, it must neither answer nor search for its name.
    """
    now = read_current_turn(transcript)
    if (
        now.calls
        or not find_request_files(now.user_text)
        or not any(one.short_name == "read" for one in tools)
    ):
        return ToolChoice(tuple(tools))
    out = {"ls", "glob"} if _SEARCH_REQUEST.search(now.user_text) else {"ls", "glob", "grep"}
    return ToolChoice(tuple(one for one in tools if one.short_name not in out), may_answer=False)


def _vote_for_tools(user_text: str, tools: tuple[SmallTool, ...]) -> ToolChoice:
    named = bool(find_request_files(user_text))
    # With a file's name, something is to be done with that file; without one, it cannot be.
    out = ("", "ls", "glob") if named else ("read", "edit", "write")
    ranked = rank_examples(user_text, frozenset(offer.short_name for offer in tools))
    near = [pair for pair in ranked if pair[1].tool not in out][:MAX_VOTES]
    if not named and _FOLDER_QUESTION.search(user_text):
        near = [pair for pair in near if pair[1].tool == "ls"] or near
    if not near or near[0][0] < (MIN_FILE_SCORE if named else MIN_SCORE):
        # Like nothing known: a file is read, and anything else is a question to be answered.
        kept = tuple(offer for offer in tools if named and offer.short_name == "read")
        return ToolChoice(
            tuple(constrain_arguments(offer, user_text) for offer in kept), may_answer=not kept
        )
    votes: dict[str, float] = {}
    for score, example in near:
        votes[example.tool] = votes.get(example.tool, 0.0) + score * score
    best = max(votes, key=lambda word: votes[word])
    if not best:
        return ToolChoice(())
    chosen = {word for word, vote in votes.items() if word and vote >= MIN_VOTE_SHARE * votes[best]}
    kept = tuple(
        constrain_arguments(offer, user_text) for offer in tools if offer.short_name in chosen
    )
    return ToolChoice(kept, may_answer=False, forced_call=_find_single_call(kept))


def _find_single_call(tools: Sequence[SmallTool]) -> tuple[SmallTool, dict[str, str]] | None:
    """The call, if there is nothing left to choose."""
    if len(tools) != 1 or any(len(field.choices) != 1 for field in tools[0].fields):
        return None
    return tools[0], {field.short_name: field.choices[0] for field in tools[0].fields}


def _find_readme_call(
    turn: CurrentTurn, tools: Sequence[SmallTool]
) -> tuple[SmallTool, dict[str, str]] | None:
    """A listing that shows a README, for someone who wants to know what all this is."""
    last = turn.results[-1]
    found = _README.search(last.text)
    if (
        len(turn.calls) != 1
        or last.is_error
        or found is None
        or not _FOLDER_QUESTION.search(turn.user_text)
    ):
        return None
    for offer in tools:
        if offer.short_name == "read" and offer.real_name != turn.calls[0].name:
            return offer, {"path": found[1]}
    return None


def list_calls_since_change(transcript: Transcript) -> list[ToolCall]:
    """The calls of this turn after the last one that may have changed something."""
    calls = list(read_current_turn(transcript).calls)
    for place in range(len(calls) - 1, -1, -1):
        if not _READ_ONLY_TOOL.search(calls[place].name.lower()) and not _is_listing(calls[place]):
            return calls[place + 1 :]
    return calls


_READ_ONLY_TOOL = re.compile(r"^(read|view|grep|glob|ls|list|search|find)")


def _is_listing(call: ToolCall) -> bool:
    command = (call.arguments or {}).get("command", "")
    return isinstance(command, str) and command.startswith("ls ")
