"""Narrows the tools that a small model may call next, so that its choice is right more often.

For a weak model, the examples most similar to the request vote for the possible calls, and the
arguments come from the words of the request (argument_values.py). After a result it answers,
except that a question about a whole folder reads its README first. The state is read from the
transcript: nothing is kept between requests. Used by model.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import AssistantItem, ToolResultItem, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.lib.text.word_set import word_set
from treadle.models.embedded.aids.argument_values import (
    LOOK_COMMAND,
    constrain_arguments,
    constrain_edit,
    find_request_files,
    has_values,
    strip_values,
)
from treadle.models.embedded.aids.change_request import (
    asks_for_change,
    asks_for_several,
    find_names,
    find_related_files,
)
from treadle.models.embedded.aids.check_output import strip_line_numbers
from treadle.models.embedded.few_shot import (
    EXAMPLES,
    extract_features,
    is_small_talk,
    measure_known_share,
    rank_examples,
)
from treadle.models.embedded.prompt_text import find_last_input
from treadle.models.embedded.small_toolset import SmallTool, to_short_call

MAX_VOTES = 4
MIN_SCORE = 0.3  # below this no example is similar to the request
MIN_FILE_SCORE = 0.2
MIN_KNOWN_SHARE = 0.5  # of the words of a request; with fewer it is not understood
TOOLS_WITH_EXAMPLES = frozenset(example.tool for example in EXAMPLES)
MIN_VOTE_SHARE = 0.75  # of the best vote
MAX_CALLS = 12  # of a request for several changes
_CHANGING = frozenset({"edit", "write"})
MAX_ERRORS = 3  # of a change, before the model may answer without one

_FOLDER_QUESTION = re.compile(
    r"\b(what|which|describe|explain|about|summar\w+|purpose|overview)\b.*"
    r"\b(folder|directory|project|repo\w*|code ?base|program|app)\b"
    r"|\b(folder|directory|project|repo\w*|code ?base)\b.*\b(about|is|does|for)\b",
    re.IGNORECASE | re.DOTALL,
)
_SEARCH_REQUEST = re.compile(
    r"\b(where|which|search|find|look for|mentions?|uses?|used|imports?)\b", re.IGNORECASE
)
_FILES = re.compile(r"\bfiles?\b|\.\w|\*", re.IGNORECASE)
# A question about the world has no such noun behind its article.
_QUESTION_ABOUT_HERE = re.compile(
    r"\s*(?:what|which|where|who|when|how (?:many|much|long|often)|is|are|does|do|can)\b"
    r".*\b(?:the|this|these|our|my)\s+(?:\w+\s+)?(?:api|app|application|backend|build|cache|cli|"
    r"client|command|config\w*|container|cron|daemon|database|db|default|deploy\w*|endpoint|"
    r"frontend|job|library|limit|log|module|package|pipeline|port|program|queue|release|schema|"
    r"script|server|service|setting|site|table|task|tests?|timeout|tool|url|version|worker)s?\b",
    re.IGNORECASE | re.DOTALL,
)
_LONG_WORD = re.compile(r"[a-z]\w{3,}")
_COMMON_WORDS = word_set(
    "what which where when does this these there that have with from file files folder many much "
    "used uses function class method variable code called name names value long often"
)
_README = re.compile(r"(?im)^(?:\S*[\s/])?(README(?:\.\w+)?)\s*$")


class ToolChoice(msgspec.Struct, frozen=True):
    """The possible calls. A `forced_call` is the only one: the model is not asked."""

    tools: tuple[SmallTool, ...]
    may_answer: bool = True
    forced_call: tuple[SmallTool, dict[str, str]] | None = None


class CurrentTurn(msgspec.Struct, frozen=True):
    """The user's request of the current turn, the calls since, and their results."""

    user_text: str
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResultItem, ...]


def read_current_turn(transcript: Transcript) -> CurrentTurn:
    start = find_last_input(transcript)
    first = transcript[start] if start >= 0 else None
    items = transcript[start + 1 :]
    return CurrentTurn(
        first.text if isinstance(first, UserItem) else "",
        tuple(call for item in items if isinstance(item, AssistantItem) for call in item.calls),
        tuple(item for item in items if isinstance(item, ToolResultItem)),
    )


def choose_tools(transcript: Transcript, tools: Sequence[SmallTool]) -> ToolChoice:
    """The possible calls for a weak model."""
    turn = read_current_turn(transcript)
    if turn.results:
        return ToolChoice((), forced_call=_find_readme_call(turn, tools))
    if is_small_talk(turn.user_text):
        return ToolChoice(())
    if matching := _match_descriptions(turn.user_text, tools):
        return ToolChoice(matching)
    return _vote_for_tools(turn.user_text, tuple(tools))


def is_understood(user_text: str, tools: Sequence[SmallTool]) -> bool:
    """Whether the words of a request tell what it is about, beside the names in it."""
    if _FOLDER_QUESTION.search(user_text) or _match_descriptions(user_text, tools):
        return True
    return measure_known_share(strip_values(user_text)) >= MIN_KNOWN_SHARE


def _match_descriptions(user_text: str, tools: Sequence[SmallTool]) -> tuple[SmallTool, ...]:
    """Tools without examples whose name or description shares a word with the request."""
    words = extract_features(user_text).keys()
    return tuple(
        tool
        for tool in tools
        if tool.short_name not in TOOLS_WITH_EXAMPLES
        and words & extract_features(f"{tool.short_name} {tool.description}").keys()
    )


def narrow_tools(transcript: Transcript, tools: Sequence[SmallTool]) -> ToolChoice:
    """The possible calls for a model that chooses well by itself.

    Asked about a file that it has not read, it must neither answer nor search for the name. Asked
    for a change, it is shown the folder and the files first, and must not answer before it tried.
    """
    turn = read_current_turn(transcript)
    if asks_for_change(turn.user_text):
        return _choose_for_change(turn, tools)
    if not turn.calls and (search := _find_search_call(turn.user_text, tools)) is not None:
        return ToolChoice((), forced_call=search)
    can_read = any(tool.short_name == "read" for tool in tools)
    if turn.calls or not can_read or not find_request_files(turn.user_text):
        return ToolChoice(tuple(tools))
    out = {"ls", "glob"} if _SEARCH_REQUEST.search(turn.user_text) else {"ls", "glob", "grep"}
    return ToolChoice(tuple(tool for tool in tools if tool.short_name not in out), may_answer=False)


def _choose_for_change(turn: CurrentTurn, tools: Sequence[SmallTool]) -> ToolChoice:
    by_name = {tool.short_name: tool for tool in tools}
    listing = find_listing(turn, tools)
    if listing is None and not turn.calls and "ls" in by_name:
        return ToolChoice((), forced_call=(by_name["ls"], {"path": "."}))
    if "read" in by_name:
        names = find_names(listing or "")
        known = list_paths(turn, tools)
        for path in find_related_files(turn.user_text, names):
            if path not in known:
                return ToolChoice((), forced_call=(by_name["read"], {"path": path}))
    if has_changed(turn):
        # A small model does not see that it is done: it would change the next best thing.
        is_open = asks_for_several(turn.user_text) and len(turn.calls) < MAX_CALLS
        return ToolChoice(tuple(one for one in tools if is_open and one.short_name in _CHANGING))
    if count_errors(turn) >= MAX_ERRORS:
        return ToolChoice(tuple(tools))
    sources = read_sources(turn, tools)
    # One that was shown what it has to change would look on instead.
    out = (
        {"ls", "glob", "read", "grep"}
        if sources or find_request_files(turn.user_text)
        else {"ls", "glob"}
    )
    left = [tool for tool in tools if listing is None or tool.short_name not in out]
    left = [constrain_edit(tool, turn.user_text, sources) for tool in left]
    return ToolChoice(tuple(left), may_answer=not left)


def read_sources(turn: CurrentTurn, tools: Sequence[SmallTool]) -> dict[str, str]:
    """The files that were read in this turn, by path."""
    sources: dict[str, str] = {}
    for call, result in _pair_results(turn):
        name, arguments = to_short_call(call, tools) or ("", {})
        if name == "read" and not result.is_error:
            sources[str(arguments.get("path"))] = strip_line_numbers(result.text)
    return sources


def _find_search_call(
    user_text: str, tools: Sequence[SmallTool]
) -> tuple[SmallTool, dict[str, str]] | None:
    """The search for the words of a question about something that is here: "the server"."""
    is_here = _QUESTION_ABOUT_HERE.match(user_text) is not None
    if not is_here or _FOLDER_QUESTION.search(user_text) or find_request_files(user_text):
        return None
    words = [word for word in _LONG_WORD.findall(user_text.lower()) if word not in _COMMON_WORDS]
    greps = [tool for tool in tools if tool.short_name == "grep"]
    return (greps[0], {"pattern": f"(?i){'|'.join(words)}"}) if words and greps else None


def find_listing(turn: CurrentTurn, tools: Sequence[SmallTool]) -> str | None:
    """The names of the folder, if they were listed in this turn."""
    for call, result in _pair_results(turn):
        if to_short_call(call, tools) == ("ls", {"path": "."}) and not result.is_error:
            return result.text
    return None


def list_paths(turn: CurrentTurn, tools: Sequence[SmallTool]) -> set[str]:
    """The files that calls of this turn were about, found or not."""
    short = [to_short_call(call, tools) for call, _ in _pair_results(turn)]
    return {str(arguments.get("path")) for name, arguments in filter(None, short) if name != "ls"}


def count_errors(turn: CurrentTurn) -> int:
    return sum(result.is_error for result in turn.results)


def _pair_results(turn: CurrentTurn) -> list[tuple[ToolCall, ToolResultItem]]:
    by_id = {result.call_id: result for result in turn.results}
    return [(call, by_id[call.id]) for call in turn.calls if call.id in by_id]


def _vote_for_tools(user_text: str, tools: tuple[SmallTool, ...]) -> ToolChoice:
    named = bool(find_request_files(user_text))
    # With a file name, the request is about that file; without one, no file can be the target.
    out = {"", "ls", "glob"} if named else {"read", "edit", "write"}
    if not _SEARCH_REQUEST.search(user_text):
        out.add("grep")
    if not _FILES.search(user_text):
        out.add("glob")
    ranked = rank_examples(user_text, frozenset(tool.short_name for tool in tools))
    near = [pair for pair in ranked if pair[1].tool not in out][:MAX_VOTES]
    if not named and _FOLDER_QUESTION.search(user_text):
        near = [pair for pair in near if pair[1].tool == "ls"] or near
    is_near = bool(near) and near[0][0] >= (MIN_FILE_SCORE if named else MIN_SCORE)
    if not is_near or not is_understood(user_text, tools):
        # No similar example: read the file that is named, or answer.
        can_read = named and not asks_for_change(user_text)
        readers = tuple(tool for tool in tools if can_read and tool.short_name == "read")
        possible = tuple(constrain_arguments(tool, user_text) for tool in readers)
        forced_call = _find_single_call(possible)
        return ToolChoice(possible, may_answer=not readers, forced_call=forced_call)
    votes: dict[str, float] = {}
    for score, example in near:
        votes[example.tool] = votes.get(example.tool, 0.0) + score * score
    best = max(votes, key=lambda word: votes[word])
    if not best:
        return ToolChoice(())
    chosen = {word for word, vote in votes.items() if word and vote >= MIN_VOTE_SHARE * votes[best]}
    voted = [tool for tool in tools if tool.short_name in chosen]
    constrained = (constrain_arguments(tool, user_text) for tool in voted)
    possible = tuple(tool for tool in constrained if has_values(tool))
    return ToolChoice(possible, may_answer=False, forced_call=_find_single_call(possible))


def _find_single_call(tools: Sequence[SmallTool]) -> tuple[SmallTool, dict[str, str]] | None:
    """The call, if only one is possible."""
    if len(tools) != 1 or any(len(field.choices) != 1 for field in tools[0].fields):
        return None
    return tools[0], {field.short_name: field.choices[0] for field in tools[0].fields}


def _find_readme_call(
    turn: CurrentTurn, tools: Sequence[SmallTool]
) -> tuple[SmallTool, dict[str, str]] | None:
    """The call that reads the README of a listing, if the user asks what the folder is."""
    last = turn.results[-1]
    readme = _README.search(last.text)
    if len(turn.calls) != 1 or last.is_error or readme is None:
        return None
    if not _FOLDER_QUESTION.search(turn.user_text):
        return None
    for tool in tools:
        if tool.short_name == "read" and tool.real_name != turn.calls[0].name:
            return tool, {"path": readme[1]}
    return None


def list_calls_since_change(transcript: Transcript) -> list[ToolCall]:
    """The calls of this turn after the last one that may have changed something."""
    calls = list(read_current_turn(transcript).calls)
    for index in range(len(calls) - 1, -1, -1):
        if not _READ_ONLY_TOOL.search(calls[index].name.lower()) and not _is_listing(calls[index]):
            return calls[index + 1 :]
    return calls


def lacks_change(turn: CurrentTurn) -> bool:
    """Whether the user asked for a change, and no call has changed anything."""
    return asks_for_change(turn.user_text) and not has_changed(turn)


def is_denied(turn: CurrentTurn) -> bool:
    """Whether a call of the turn was denied."""
    return any(result.outcome == "denied" for result in turn.results)


def has_changed(turn: CurrentTurn) -> bool:
    """Whether a call that may change something succeeded."""
    return any(
        not result.is_error and not _READ_ONLY_TOOL.search(call.name.lower())
        for call, result in _pair_results(turn)
        if not _is_look(call)
    )


_READ_ONLY_TOOL = re.compile(r"^(read|view|grep|glob|ls|list|search|find)")


def _is_listing(call: ToolCall) -> bool:
    command = (call.arguments or {}).get("command", "")
    return isinstance(command, str) and command.startswith("ls ")


def _is_look(call: ToolCall) -> bool:
    """Whether a command only shows something."""
    command = (call.arguments or {}).get("command", "")
    return isinstance(command, str) and LOOK_COMMAND.fullmatch(command) is not None
