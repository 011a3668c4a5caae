"""Results of base64 and hex text have few characters per token: a refusal teaches the estimate."""

from __future__ import annotations

import pytest

from treadle import Agent, Usage, tool
from treadle.context.compaction import Compactor
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.errors import ContextTooLong
from treadle.core.transcript import ToolResultItem
from treadle.models import Say, Scripted

WINDOW = 32_000
ROUNDS = 6
DENSE, PROSE = "q7Zk", "word "


def count_tokens(request: ModelRequest) -> int:
    """As a provider would: 1.6 characters per token in results, 4 elsewhere."""
    total = 0.0
    for item in request.transcript:
        ratio = 1.6 if isinstance(item, ToolResultItem) and DENSE in item.text else 4
        total += len(item.text) / ratio
    return int(total) + len(request.transcript) * 10


class Provider:
    """A model that fetches in every round, and rejects requests that are too long."""

    def __init__(self) -> None:
        self.rejected = 0
        self.rounds = 0

    def answer(self, request: ModelRequest) -> Say | ContextTooLong:
        tokens = count_tokens(request)
        if tokens > WINDOW:
            self.rejected += 1
            return ContextTooLong(f"prompt is too long: {tokens} > {WINDOW}")
        used = Usage(tokens, 10, requests=1)
        if request.purpose == "summary":
            return Say("Notes.", usage=used)
        self.rounds += 1
        if self.rounds > ROUNDS:
            return Say("Done.", usage=used)
        return Say(calls=[("fetch", {"n": self.rounds})], usage=used)


async def fetch_all(provider: Provider, text: str, compactor: Compactor) -> str:
    @tool(effect="pure")
    async def fetch(n: int) -> str:
        return text

    card = ModelCard("small", window=WINDOW, max_output=2_000)
    agent = Agent(Scripted(provider.answer, card=card), [fetch], mutators=[compactor])
    return (await agent.run("Fetch all.")).text


@pytest.mark.parametrize("chars", [30_000, 60_000, 90_000])
async def test_a_turn_with_base64_results_is_rejected_once_and_learns(chars: int):
    provider = Provider()
    text = DENSE * (chars // len(DENSE))
    assert await fetch_all(provider, text, Compactor()) == "Done."
    assert provider.rejected <= 1


async def test_prose_is_not_compacted_more_often_without_a_refusal():
    provider = Provider()
    text = PROSE * (20_000 // len(PROSE))
    assert await fetch_all(provider, text, Compactor()) == "Done."
    assert provider.rejected == 0


async def test_every_round_may_recover_from_a_request_that_was_too_long():
    """Without an estimate at all, the rejection of each round leads to a compaction."""

    class Reactive(Compactor):
        points = frozenset({"context_too_long"})

    provider = Provider()
    assert await fetch_all(provider, DENSE * 15_000, Reactive()) == "Done."
    assert provider.rejected == ROUNDS


async def test_a_request_that_stays_too_long_ends_the_turn():
    def refuse(request: ModelRequest) -> ContextTooLong:
        return ContextTooLong("prompt is too long")

    model = Scripted(refuse, card=ModelCard("small", window=WINDOW, max_output=2_000))
    with pytest.raises(ContextTooLong):
        await Agent(model, mutators=[Compactor()]).run("x" * 50_000)
    assert len(model.requests) == 2
