"""A compaction that cannot win is not tried for ever; large instructions cost nobody's words."""

from __future__ import annotations

import pytest

from treadle import Agent, Usage, tool
from treadle.context.compaction import Compactor
from treadle.context.token_estimator import DEFAULT_CHARS_PER_TOKEN, count_chars
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.events import Notified
from treadle.models import Say, Scripted
from treadle.testing.observers import RecordingObserver

ROUNDS = 60
ROOM = 9_500
CARD = ModelCard("small", window=ROOM + 500, max_output=500)
WORDS = "Keep these words."


async def work_for_long(
    said: str, instructions: str, printed: int
) -> tuple[Scripted, Scripted, list[str]]:
    """Sixty rounds of a tool that prints so much: the model, who sums up, and what was told."""

    @tool(effect="pure")
    async def work(n: int) -> str:
        return "x" * printed

    def answer(request: ModelRequest) -> Say:
        if len(model.requests) > ROUNDS:
            return Say("Done.")
        used = Usage(
            int((count_chars(request.transcript) + len(request.system)) / DEFAULT_CHARS_PER_TOKEN),
            10,
        )
        return Say(calls=[("work", {"n": len(model.requests)})], usage=used)

    notes = Scripted(lambda request: "Goal: go on.", card=ModelCard("notes"))
    model, witness = Scripted(answer, card=CARD), RecordingObserver()
    agent = Agent(
        model,
        [work],
        instructions=instructions,
        mutators=[Compactor(notes)],
        observers=[witness],
        max_turns=ROUNDS + 1,
    )
    assert (await agent.run(said)).reason == "end_turn"
    return model, notes, [event.text for event in witness.events_of(Notified)]


async def test_a_compaction_that_wins_too_little_is_refused_and_given_up_after_two():
    """The user's own words fill the room up to the mark, and they are not to be shortened."""
    said = WORDS + "z" * int(0.86 * ROOM * DEFAULT_CHARS_PER_TOKEN)
    model, notes, told = await work_for_long(said, "Be brief.", 2)
    assert [line.partition("(")[0] for line in told[:2]] == [
        "compaction skipped: it saves too little "
    ] * 2
    assert "the next attempt is when the context is full" in told[1]
    assert len(told) <= 6
    assert len(notes.requests) <= 2
    assert all(said in repr(request.transcript) for request in model.requests)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("printed", [50, 600, 3_000])
async def test_instructions_that_fill_most_of_the_window_are_no_loop_and_cost_no_words(
    share: float, printed: int
):
    instructions = "w" * int(share * ROOM * DEFAULT_CHARS_PER_TOKEN)
    model, notes, _ = await work_for_long(WORDS, instructions, printed)
    assert len(notes.requests) <= ROUNDS / 5
    assert all(WORDS in repr(request.transcript) for request in model.requests)
    most = max(count_chars(request.transcript) + len(request.system) for request in model.requests)
    assert most <= ROOM * DEFAULT_CHARS_PER_TOKEN
