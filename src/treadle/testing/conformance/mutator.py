"""The promises of a Mutator (core/contracts/mutator.py), as checks.

    await check_mutator(make)                    with transcripts of the suite
    await check_mutator(make, [transcript])      and with your own

It runs at each of its points, on empty, short, long and unfinished transcripts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import get_args

from treadle.core.contracts.model import CallModel, Model, ModelCard, ModelRequest
from treadle.core.contracts.mutator import MutationContext, MutationPoint, Mutator
from treadle.core.contracts.wrapped import call_directly
from treadle.core.errors import CallNotAdmitted
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import CallPurpose, Usage
from treadle.testing.conformance.promises import Promise, build, keep_promises

MakeMutator = Callable[[], Mutator | Awaitable[Mutator]]
Transcripts = Sequence[Transcript]

CARD = ModelCard("conformance/model", window=8_000, max_output=1_000)


def _list_round(number: int, chars: int, *, is_open: bool = False) -> list[Item]:
    calls = [ToolCall(f"call_{number}_{part}", "read", '{"path": "a"}') for part in "ab"]
    results = [ToolResultItem(call.id, call.name, (Text("x" * chars),)) for call in calls]
    reply = AssistantItem((Text(f"Step {number}."), *calls), "tool_use", CARD.name, Usage(10, 10))
    return [reply, *(results[:1] if is_open else results)]


def _list_rounds(count: int, chars: int) -> list[Item]:
    return [item for number in range(count) for item in _list_round(number, chars)]


_ASKED: UserItem = to_user_item("Tidy up.")
_ANSWER = AssistantItem((Text("Done."),), model=CARD.name)
TRANSCRIPTS: Transcripts = (
    Transcript(),
    Transcript([_ASKED]),
    Transcript([_ASKED, _ANSWER]),
    Transcript([_ASKED, *_list_rounds(2, 100), _ANSWER, NoticeItem("A note."), _ASKED]),
    Transcript([SummaryItem("They talked.", 4), _ASKED, *_list_round(9, 100, is_open=True)]),
    Transcript([_ASKED, *_list_rounds(40, 2_000)]),
    Transcript([_ASKED, *_list_rounds(40, 2_000), *_list_round(99, 9_000, is_open=True)]),
)


async def check_mutator(make: MakeMutator, transcripts: Transcripts = ()) -> None:
    """Raise an AssertionError that names the first broken promise."""
    await keep_promises("mutator", MUTATOR_PROMISES, make, (*TRANSCRIPTS, *transcripts))


async def admit_nothing(request: ModelRequest, purpose: CallPurpose, model: Model) -> AssistantItem:
    """A `call_model` of a session whose budget is used up."""
    raise CallNotAdmitted("there is no budget for the call")


def make_mutation_context(
    point: MutationPoint, transcript: Transcript, call_model: CallModel = call_directly
) -> MutationContext:
    """What a mutator gets at a point, as the loop makes it."""

    async def run_pre_compact_hooks() -> str:
        return ""

    return MutationContext(
        point,
        transcript,
        session_id="session",
        turn_id="turn-1",
        card=CARD,
        last_usage=Usage(),
        overhead_chars=1_000,
        notify=lambda text: None,
        run_pre_compact_hooks=run_pre_compact_hooks,
        call_model=call_model,
    )


async def _list_views(
    make: MakeMutator, transcripts: Transcripts, call_model: CallModel = call_directly
) -> list[tuple[Transcript, Transcript]]:
    """Each transcript with the view that the mutator makes of it, if it makes one."""
    views = []
    mutator = await build(make)
    for context in _list_contexts(mutator, transcripts, call_model):
        new = await mutator.mutate(context)
        assert new is None or isinstance(new, Transcript), f"mutate() returns {new!r:.200}"
        if new is not None and new is not context.transcript:
            views.append((context.transcript, new))
    return views


def _list_contexts(
    mutator: Mutator, transcripts: Transcripts, call_model: CallModel
) -> Iterator[MutationContext]:
    points: tuple[MutationPoint, ...] = get_args(MutationPoint)
    for transcript in transcripts:
        is_open = isinstance(pending(transcript), RunTools)
        for point in points:
            # Calls are open only while the user has to approve them: then a host may compact.
            if point in mutator.points and (point == "on_request" or not is_open):
                yield make_mutation_context(point, transcript, call_model)


async def has_a_name_and_points(make: MakeMutator, transcripts: Transcripts) -> None:
    mutator = await build(make)
    assert mutator.name, "the name is empty"
    assert mutator.points, "it has no points: it would never run"
    unknown = set(mutator.points) - set(get_args(MutationPoint))
    assert not unknown, f"it has unknown points: {sorted(unknown)}"


async def a_view_without_a_change_is_none_or_the_same_object(
    make: MakeMutator, transcripts: Transcripts
) -> None:
    for old, new in await _list_views(make, transcripts):
        assert new != old, "the new view is a copy of the old one"


async def keeps_every_law(make: MakeMutator, transcripts: Transcripts) -> None:
    for _, new in await _list_views(make, transcripts):
        broken = find_violations(new)
        assert not broken, f"the new view breaks a law: {broken[0]}"


async def keeps_the_open_calls(make: MakeMutator, transcripts: Transcripts) -> None:
    for old, new in await _list_views(make, transcripts):
        before, after = pending(old), pending(new)
        if isinstance(before, RunTools) or isinstance(after, RunTools):
            assert before == after, f"the next move was {before}, and is {after}"


async def items_that_stay_are_the_same_objects(make: MakeMutator, transcripts: Transcripts) -> None:
    for old, new in await _list_views(make, transcripts):
        known = {id(item) for item in old}
        for item in new:
            is_copy = id(item) not in known and any(item == other for other in old)
            assert not is_copy, f"{type(item).__name__} stays, as a copy"


async def does_not_change_the_old_view(make: MakeMutator, transcripts: Transcripts) -> None:
    for transcript in transcripts:
        before = list(transcript)
        await _list_views(make, [transcript])
        after = list(transcript)
        assert [id(item) for item in before] == [id(item) for item in after], "its items change"


async def works_without_a_budget(make: MakeMutator, transcripts: Transcripts) -> None:
    await _list_views(make, transcripts, admit_nothing)


MUTATOR_PROMISES: tuple[Promise, ...] = (
    has_a_name_and_points,
    a_view_without_a_change_is_none_or_the_same_object,
    keeps_every_law,
    keeps_the_open_calls,
    items_that_stay_are_the_same_objects,
    does_not_change_the_old_view,
    works_without_a_budget,
)
