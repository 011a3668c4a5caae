"""`recall`: earlier messages and results that are no longer in the model's view.

Searches the whole history of the session, which compaction does not shorten: by words, or one
tool result by its id. A host may provide a better search as the service "recall".
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from operator import itemgetter
from typing import Annotated

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ToolError
from treadle.core.transcript import AssistantItem, Item, Text, ToolResultItem, UserItem
from treadle.lib.text.text import plural
from treadle.tools.builtin.base import BuiltinTool, describe
from treadle.tools.builtin.file_text import slice_part
from treadle.tools.builtin.session_memory import CallSite

MAX_PASSAGES = 20
PART_CHARS = 20_000
CONTEXT_CHARS = 300

SearchHistory = Callable[[str, str, int], Awaitable[Sequence[str]]]  # session, query, limit


class RecallArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, describe("Words that stood there")] = ""
    id: Annotated[str, describe("To see all of one answer")] = ""
    offset: Annotated[int, describe("Character to read on from, with id")] = 0
    limit: Annotated[int, describe("Passages, 20 at most")] = 5


class RecallTool(BuiltinTool[RecallArguments]):
    name = "recall"
    kind = "search"
    arguments_type = RecallArguments
    max_result_chars = 40_000

    def validate(self, args: RecallArguments) -> str | None:
        if bool(args.query.strip()) == bool(args.id):
            return "give either a query, or the id of an answer"
        return None if args.offset >= 0 else "offset counts characters from 0"

    async def run(self, args: RecallArguments, site: CallSite) -> ToolOutput:
        history = site.context.history()
        if args.id:
            return _read_result(history, args)
        limit = max(1, min(args.limit, MAX_PASSAGES))
        searcher: SearchHistory | None = site.context.services.get("recall")
        if searcher is not None:
            passages = await searcher(site.context.session_id, args.query, limit)
        else:
            passages = list(_search_history(history, args.query, limit))
        if not passages:
            return ToolOutput("Nothing was found; try other words.", display="Nothing was found")
        display = f"Recalled {plural(len(passages), 'passage')}"
        return ToolOutput("\n\n".join(passages), display)


def _read_result(history: Sequence[Item], args: RecallArguments) -> ToolOutput:
    for item in history:
        if isinstance(item, ToolResultItem) and item.call_id == args.id:
            part, rest = slice_part(item.model_text, args.offset, PART_CHARS)
            others = tuple(content for content in item.content if not isinstance(content, Text))
            display = f"Recalled the result of {item.name}"
            if not others:
                return ToolOutput(part + rest, display)
            return ToolOutput((Text(part + rest), *others), display)
    raise ToolError(f"no result has the id {args.id!r}; search with a query instead")


def _search_history(history: Sequence[Item], query: str, limit: int) -> Iterator[str]:
    """The passages with the most query words (newer ones first among equals), oldest first."""
    words = list(dict.fromkeys(re.findall(r"\w+", query.lower())))
    scored: list[tuple[float, int, str, str]] = []
    for position, item in enumerate(history):
        who, text = _item_text(item)
        lower = text.lower()
        hits = sum(word in lower for word in words)
        if hits:
            phrase = query.lower().strip() in lower
            scored.append((hits + 2 * phrase, position, who, text))
    best = sorted(scored, reverse=True)[:limit]
    for _, position, who, text in sorted(best, key=itemgetter(1)):
        yield f"[{position + 1} of {len(history)}, {who}]\n{_extract_passage(text, query, words)}"


def _item_text(item: Item) -> tuple[str, str]:
    match item:
        case UserItem():
            return "the user", item.text
        case AssistantItem():
            # Queries of earlier recalls are not part of the history.
            others = [call for call in item.calls if call.name != RecallTool.name]
            calls = [f"{call.name} {call.raw}" for call in others]
            return "you", "\n".join([item.text, *calls])
        case ToolResultItem() if item.name != RecallTool.name:
            return f'answer of {item.name}, id "{item.call_id}"', item.model_text
    return "", ""


def _extract_passage(text: str, query: str, words: Sequence[str]) -> str:
    lower = text.lower()
    hits = [lower.find(query.lower().strip()), *(lower.find(word) for word in words)]
    middle = next((hit for hit in hits if hit >= 0), 0)
    start, end = max(0, middle - CONTEXT_CHARS), min(len(text), middle + 2 * CONTEXT_CHARS)
    before, after = "... " if start else "", " ..." if end < len(text) else ""
    return f"{before}{text[start:end].strip()}{after}"
