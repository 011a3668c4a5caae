"""Stories of documents and pictures that are large: no request breaks the window or the budget."""

from __future__ import annotations

import struct

import pytest

from treadle import Agent, Usage, tool
from treadle.context.compaction import Compactor
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ContextTooLong
from treadle.core.transcript import Document, Image, Text, UserItem
from treadle.lib.files.media_size import count_pdf_pages
from treadle.models import Say, Scripted
from treadle.policy.budgets import CostBudget, SharedBudget

CARD = ModelCard("m", window=200_000, max_output=8_000, input_price=3.0, output_price=15.0)
A_PAGE = 2_300  # what a provider makes of a page of a paper
A_PICTURE = 1_600


def paper(pages: int) -> Document:
    return Document("application/pdf", b"%PDF-1.4\n" + b"<< /Type /Page >>\n" * pages)


class Reader(Scripted):
    """Counts as a provider does, and refuses what does not fit; calls for `read` so often."""

    def __init__(self, reads: int = 0) -> None:
        super().__init__(self._reply, card=CARD)
        self.refused = 0
        self.seen: list[int] = []
        self._reads = reads

    def _reply(self, request: ModelRequest) -> Say | ContextTooLong:
        tokens = pages = 0
        for item in request.transcript:
            for part in getattr(item, "content", ()):
                if isinstance(part, Document):
                    pages += count_pdf_pages(part.data)
                elif isinstance(part, Image):
                    tokens += A_PICTURE
                elif isinstance(part, Text):
                    tokens += len(part.text) // 3
        tokens += pages * A_PAGE
        self.seen.append(pages)
        if tokens > CARD.window - CARD.max_output:
            self.refused += 1
            return ContextTooLong(f"{tokens} tokens")
        used = Usage(tokens, 10, requests=1, cost=tokens * 3e-6)
        if len(self.requests) <= self._reads:
            return Say(calls=[("read", {"n": len(self.requests)})], usage=used)
        return Say("Read.", usage=used)


async def test_papers_that_fit_one_by_one_are_never_sent_together_where_they_do_not():
    @tool
    async def read(n: int) -> ToolOutput:
        return ToolOutput((Text(f"paper {n}"), paper(30)))

    model = Reader(reads=6)
    result = await Agent(model, [read], mutators=[Compactor()]).run("Read six papers.")
    assert result.text == "Read."
    assert model.refused == 0
    assert max(model.seen) >= 30  # the newest was seen


async def test_a_paper_that_fits_is_sent_whole():
    model = Reader()
    await Agent(model, mutators=[Compactor()]).run(UserItem((Text("Sum up."), paper(40))))
    assert (model.seen, model.refused) == ([40], 0)


async def test_a_book_that_can_never_fit_is_not_tried():
    @tool
    async def read(n: int) -> ToolOutput:
        return ToolOutput((Text("a book"), paper(500)))

    model = Reader(reads=1)
    result = await Agent(model, [read], mutators=[Compactor()]).run("Read the book.")
    assert (result.text, model.refused) == ("Read.", 0)


async def test_many_screenshots_are_let_go_before_they_fill_the_window():
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 1_920, 1_080)

    @tool
    async def read(n: int) -> ToolOutput:
        return ToolOutput((Text(f"shot {n}"), Image("image/png", png)))

    model = Reader(reads=150)
    agent = Agent(model, [read], mutators=[Compactor()], max_turns=200)
    result = await agent.run("Look, again and again.")
    assert (result.text, model.refused) == ("Read.", 0)


async def test_the_budget_sees_what_a_document_costs_before_it_is_sent():
    said = UserItem((Text("Sum up."), paper(40)))  # 92,000 tokens: 0.28 USD
    purse, model = SharedBudget(0.28), Reader()
    result = await Agent(model, gates=[CostBudget(purse)]).run(said)
    assert (result.reason, model.requests) == ("budget_exceeded", [])
    purse, model = SharedBudget(2.0), Reader()
    await Agent(model, gates=[CostBudget(purse)]).run(said)
    assert purse.spent == pytest.approx(0.276, abs=0.001)
