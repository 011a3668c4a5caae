"""The mutator that keeps a view within its model's window.

    below 0.70 of the room   nothing            below 0.85   nothing yet
    above 0.85               trims; if that is not enough a summary; then ever harder cuts
    the provider says so     the same at once, to half of the room

The room is the window without the reply's share and without the fixed part (instructions, tools),
which no compaction makes smaller. A compaction that wins nothing worth a broken cache is refused,
and said; after two in a row no more is tried before the room is full. Everything that leaves the
view stays in the log, where `recall` and `uncompact` find it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from treadle.context.compaction.pins import BETWEEN, gathered, is_pin, pinned, words_of
from treadle.context.compaction.summary import summarised
from treadle.context.compaction.trims import (
    cut_pastes,
    cut_replies,
    squeezed,
    trimmed,
)
from treadle.context.tokens import Meter, size
from treadle.core.contracts.model import Model
from treadle.core.contracts.mutator import MutationPoint, Scene
from treadle.core.errors import ContextTooLong
from treadle.core.transcript.integrity import violations
from treadle.core.transcript.items import AssistantItem, Item, SummaryItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.transcript import Transcript

WARN, COMPACT, AIM = 0.70, 0.85, 0.50
REPLY_SHARE = 0.25  # of the window at most, whatever the model could say
TAIL_SHARE = 0.30  # of the aim: what stays as it is at the end
LEAST_WIN = 0.10  # of the room: less is not worth reading the rest anew
MOST_IN_VAIN = 2
CALLS_BETWEEN_SUMMARIES = 6  # a summary is a model call: not one for each of the others


class _Session:
    """What is remembered of a session: its calibration, and how often nothing was won."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.in_vain = 0
        self.was_warned = False
        self.calls_since_summary = CALLS_BETWEEN_SUMMARIES


class Compactor:
    """Keeps views small. `model` writes the summaries; without one, older items are only named."""

    def __init__(self, model: Callable[[], Model] | Model | None = None) -> None:
        self._model = model
        self._sessions: dict[str, _Session] = {}

    @property
    def name(self) -> str:
        return "compaction"

    @property
    def points(self) -> frozenset[MutationPoint]:
        return frozenset({"before_model", "context_too_long", "on_request"})

    async def mutate(self, scene: Scene) -> Transcript | None:
        if isinstance(pending(scene.transcript), RunTools):
            return None  # they are read off the view: cut arguments would be carried out
        session = self._sessions.setdefault(scene.session_id, _Session())
        used = session.meter.tokens(scene)
        room = room_of(scene)
        fixed = _fixed_part(scene, session.meter, room)
        if scene.point == "before_model":
            session.calls_since_summary += 1
            share = (used - fixed) / (room - fixed)
            if share < WARN:
                session.was_warned = False
                return None
            if share < COMPACT:
                if not session.was_warned:
                    session.was_warned = True
                    scene.tell(f"the context is {used / room:.0%} full")
                return None
            if session.in_vain >= MOST_IN_VAIN and used < room:
                return None
        return await self._compact(scene, session, used, room)

    async def _compact(
        self, scene: Scene, session: _Session, used: int, room: int
    ) -> Transcript | None:
        focus = await scene.consult()
        if focus is None:
            scene.tell("a hook forbade the compaction")
            return None
        meter = session.meter
        most = meter.chars(room - 1) - scene.overhead_chars  # that could be sent at all
        target = int(AIM * most)
        before = size(scene.transcript)
        if scene.point != "before_model":
            target = min(target, before // 2)  # the estimate was wrong, or a person wants it
        best: list[Item] = list(scene.transcript)
        focus = f"{scene.focus}\n{focus}".strip()
        async for candidate in self._candidates(scene, session, target, focus):
            if size(candidate) < size(best) and not violations(candidate):
                best = candidate
            if size(best) <= target:
                break
        if scene.point != "on_request":
            # Only what cannot be sent otherwise costs the user's own words.
            best = _made_to_fit(best, target if scene.point == "context_too_long" else most)
        after = size(best)
        may_wait = scene.point == "before_model" and used < room
        if after >= before or (may_wait and before - after < LEAST_WIN * most):
            session.in_vain += 1
            scene.tell(_in_vain(session.in_vain, used, room))
            return None
        session.in_vain = 0
        meter.sends(scene.overhead_chars + after)
        saved = meter.of_chars(before - after)
        scene.tell(
            f"compacted: about {used:,} tokens became {max(0, used - saved):,}; "
            "nothing is lost: recall finds it, /uncompact brings it back"
        )
        return Transcript(best)

    async def _candidates(
        self, scene: Scene, session: _Session, target: int, focus: str
    ) -> AsyncIterator[list[Item]]:
        """Smaller views, the gentlest first."""
        items: list[Item] = list(scene.transcript)
        tail = tail_length(items, int(target * TAIL_SHARE))
        lighter = trimmed(items, tail)
        if scene.point != "on_request":
            yield lighter
        shorter = await self._summed_up(scene, session, lighter, tail, target, focus)
        yield shorter
        for harder in _harder(shorter):
            yield harder

    async def _summed_up(
        self,
        scene: Scene,
        session: _Session,
        items: list[Item],
        tail: int,
        target: int,
        focus: str,
    ) -> list[Item]:
        """The older part as pins and one summary; the tail as it is."""
        old, new = items[: len(items) - tail], items[len(items) - tail :]
        if not any(not is_pin(item) for item in old):
            return items
        keep = pinned(old)
        text = ""
        model = self._model() if callable(self._model) else self._model
        is_soon = session.calls_since_summary < CALLS_BETWEEN_SUMMARIES
        if scene.point == "before_model" and is_soon:
            model = None
        if model is not None:
            session.calls_since_summary = 0
            limit = int(model.card.window * 2)  # characters: well below any window in tokens
            text = await summarised(
                model,
                old,
                limit,
                focus=focus,
                session_id=scene.session_id,
                reserve=scene.reserve,
            )
        room = max(500, target - size(keep) - size(new))
        if not text or len(text) > max(room, size(old) // 2):
            if model is not None:
                scene.tell("the summary could not be used; older work is named instead")
            text = _named(old)
        return [*keep, SummaryItem(text[:room], len(old)), *new]


def room_of(scene: Scene) -> int:
    """What a request may use of the window, in tokens: the rest is for the reply."""
    window = scene.card.window
    return window - min(scene.card.max_output, int(window * REPLY_SHARE))


def tail_length(items: Sequence[Item], budget: int) -> int:
    """How many items at the end stay as they are: whole rounds, as many as fit, at least one."""
    length, used = 0, 0
    for position in range(len(items) - 1, -1, -1):
        used += size([items[position]])
        begins_round = isinstance(items[position], AssistantItem) or is_pin(items[position])
        if used > budget and length:
            break
        if begins_round:
            length = len(items) - position
    return length


def _harder(items: list[Item]) -> Iterator[list[Item]]:
    """Ever harder cuts of what tools and the model said."""
    yield trimmed(items, 0)
    for limit in (2_000, 500, 120):
        items = cut_replies(squeezed(items, limit), limit)
        yield items


def _made_to_fit(items: list[Item], limit: int) -> list[Item]:
    """The last resort: large messages of the user lose their middle, then the oldest go."""
    for longest in (8_000, 2_000, 500, 120):
        if size(items) <= limit:
            return items
        items = cut_pastes(items, longest)
    return items if size(items) <= limit else _newest(items, limit)


def _newest(items: list[Item], target: int) -> list[Item]:
    """When even the pins do not fit: the newest words that do, and a sentence about the rest."""
    tail = items[len(items) - max(tail_length(items, target // 2), 1) :]
    words = words_of(items[: len(items) - len(tail)])
    used = size(tail)
    kept: list[str] = []
    while words and used + len(words[-1]) < target - 300:
        used += len(words[-1]) + len(BETWEEN)
        kept.insert(0, words.pop())
    note = SummaryItem("Earlier messages are out of view; recall finds them.", len(items))
    return [note, *([gathered(kept)] if kept else []), *tail]


def _named(items: Sequence[Item]) -> str:
    """What can be said of older work without a model: which tools were called, how often."""
    counts: dict[str, int] = {}
    notes: list[str] = []
    for item in items:
        if isinstance(item, SummaryItem):
            notes.append(item.text)
        elif isinstance(item, AssistantItem):
            for call in item.calls:
                counts[call.name] = counts.get(call.name, 0) + 1
    calls = ", ".join(f"{name} {count} times" for name, count in counts.items())
    return "\n".join([*notes[-1:], f"Earlier work is out of view ({calls or 'talk'})."])


def _fixed_part(scene: Scene, meter: Meter, room: int) -> int:
    """Tokens of the instructions and tools, which leave something of the room."""
    fixed = meter.of_chars(scene.overhead_chars)
    if fixed >= room:
        raise ContextTooLong(
            f"the instructions and tools alone need about {fixed:,} tokens, and {scene.card.name} "
            f"has room for {room:,}; choose a model with a larger window, or fewer tools",
            provider=scene.card.name,
        )
    return fixed


def _in_vain(times: int, used: int, room: int) -> str:
    line = f"a compaction would hardly make the context smaller ({used:,} of {room:,} tokens)"
    if times < MOST_IN_VAIN:
        return f"{line}; it was not done"
    return f"{line}; no more is tried until it is full. /clear or a larger model helps"
