"""`recall`: search in what was said and done earlier and is out of the model's view now.

The host puts the searcher into the services as "recall": an async function of the session, the
query and a limit, which gives passages, best first.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ToolError
from treadle.tools.builtin.desk import Seat
from treadle.tools.builtin.form import BuiltinTool

MOST = 20

Searcher = Callable[[str, str, int], Awaitable[Sequence[str]]]  # session, query, limit


class RecallArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, msgspec.Meta(description="Words that stood there: names, paths, errors")]
    limit: Annotated[int, msgspec.Meta(description="How many passages, 20 at most")] = 5


class RecallTool(BuiltinTool[RecallArguments]):
    name = "recall"
    form = RecallArguments
    max_result_chars = 40_000

    def objection(self, given: RecallArguments) -> str | None:
        return None if given.query.strip() else "the query is empty"

    async def run(self, given: RecallArguments, seat: Seat) -> ToolOutput:
        searcher: Searcher | None = seat.context.services.get("recall")
        if searcher is None:
            raise ToolError("there is no earlier history to search: all of it is in view")
        limit = max(1, min(given.limit, MOST))
        passages = await searcher(seat.context.session_id, given.query, limit)
        if not passages:
            return ToolOutput("Nothing was found; try other words.", display="Nothing was found")
        count = "1 passage" if len(passages) == 1 else f"{len(passages)} passages"
        return ToolOutput("\n\n---\n\n".join(passages), display=f"Recalled {count}")
