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

from treadle.context.compaction.pins import (
    MESSAGE_SEPARATOR,
    collect_pins,
    collect_user_messages,
    is_pin,
    make_user_messages_notice,
)
from treadle.context.compaction.summary import summarize
from treadle.context.compaction.trims import (
    trim_old_items,
    truncate_replies,
    truncate_results,
    truncate_user_messages,
)
from treadle.context.token_estimator import TokenEstimator, count_chars
from treadle.core.contracts.model import Model
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.errors import ContextTooLong
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.items import AssistantItem, Item, SummaryItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.transcript import Transcript

WARN_SHARE, COMPACT_SHARE, TARGET_SHARE = 0.70, 0.85, 0.50
REPLY_SHARE = 0.25  # of the window at most, whatever the model could say
TAIL_SHARE = 0.30  # of the aim: what stays as it is at the end
MIN_SAVING_SHARE = 0.10  # of the room: less is not worth reading the rest anew
MAX_FAILED_ATTEMPTS = 2
MIN_CALLS_BETWEEN_SUMMARIES = 6  # a summary is a model call: not one for each of the others


class _CompactionState:
    """What is remembered of a session: its calibration, and how often nothing was won."""

    def __init__(self) -> None:
        self.estimator = TokenEstimator()
        self.failed_attempts = 0
        self.was_warned = False
        self.calls_since_summary = MIN_CALLS_BETWEEN_SUMMARIES


class Compactor:
    """Keeps views small. `model` writes the summaries; without one, older items are only named."""

    def __init__(self, model: Callable[[], Model] | Model | None = None) -> None:
        self._model = model
        self._sessions: dict[str, _CompactionState] = {}

    @property
    def name(self) -> str:
        return "compaction"

    @property
    def points(self) -> frozenset[MutationPoint]:
        return frozenset({"before_model", "context_too_long", "on_request"})

    async def mutate(self, context: MutationContext) -> Transcript | None:
        if isinstance(pending(context.transcript), RunTools):
            return None  # they are read off the view: cut arguments would be carried out
        session = self._sessions.setdefault(context.session_id, _CompactionState())
        used = session.estimator.estimate_request(context)
        room = get_token_limit(context)
        fixed = _fixed_tokens(context, session.estimator, room)
        if context.point == "before_model":
            session.calls_since_summary += 1
            share = (used - fixed) / (room - fixed)
            if share < WARN_SHARE:
                session.was_warned = False
                return None
            if share < COMPACT_SHARE:
                if not session.was_warned:
                    session.was_warned = True
                    context.notify(f"the context is {used / room:.0%} full")
                return None
            if session.failed_attempts >= MAX_FAILED_ATTEMPTS and used < room:
                return None
        return await self._compact(context, session, used, room)

    async def _compact(
        self, context: MutationContext, session: _CompactionState, used: int, token_limit: int
    ) -> Transcript | None:
        focus = await context.run_pre_compact_hooks()
        if focus is None:
            context.notify("a hook forbade the compaction")
            return None
        meter = session.estimator
        most = (
            meter.chars_for_tokens(token_limit - 1) - context.overhead_chars
        )  # that could be sent at all
        target = int(TARGET_SHARE * most)
        before = count_chars(context.transcript)
        if context.point != "before_model":
            target = min(target, before // 2)  # the estimate was wrong, or a person wants it
        best: list[Item] = list(context.transcript)
        focus = f"{context.focus}\n{focus}".strip()
        async for candidate in self._candidates(context, session, target, focus):
            if count_chars(candidate) < count_chars(best) and not find_violations(candidate):
                best = candidate
            if count_chars(best) <= target:
                break
        if context.point != "on_request":
            # Only what cannot be sent otherwise costs the user's own words.
            best = _force_fit(best, target if context.point == "context_too_long" else most)
        after = count_chars(best)
        may_wait = context.point == "before_model" and used < token_limit
        if after >= before or (may_wait and before - after < MIN_SAVING_SHARE * most):
            session.failed_attempts += 1
            context.notify(_failed_attempt_message(session.failed_attempts, used, token_limit))
            return None
        session.failed_attempts = 0
        meter.record_sent(context.overhead_chars + after)
        saved = meter.tokens_for_chars(before - after)
        context.notify(
            f"compacted: about {used:,} tokens became {max(0, used - saved):,}; "
            "nothing is lost: recall finds it, /uncompact brings it back"
        )
        return Transcript(best)

    async def _candidates(
        self, context: MutationContext, session: _CompactionState, target: int, focus: str
    ) -> AsyncIterator[list[Item]]:
        """Smaller views, the gentlest first."""
        items: list[Item] = list(context.transcript)
        tail = count_tail_items(items, int(target * TAIL_SHARE))
        lighter = trim_old_items(items, tail)
        if context.point != "on_request":
            yield lighter
        shorter = await self._summarize(context, session, lighter, tail, target, focus)
        yield shorter
        for harder in _shrink_further(shorter):
            yield harder

    async def _summarize(
        self,
        context: MutationContext,
        session: _CompactionState,
        items: list[Item],
        tail: int,
        target: int,
        focus: str,
    ) -> list[Item]:
        """The older part as pins and one summary; the tail as it is."""
        old, new = items[: len(items) - tail], items[len(items) - tail :]
        if not any(not is_pin(item) for item in old):
            return items
        keep = collect_pins(old)
        text = ""
        model = self._model() if callable(self._model) else self._model
        is_soon = session.calls_since_summary < MIN_CALLS_BETWEEN_SUMMARIES
        if context.point == "before_model" and is_soon:
            model = None
        if model is not None:
            session.calls_since_summary = 0
            limit = int(model.card.window * 2)  # characters: well below any window in tokens
            text = await summarize(
                model,
                old,
                limit,
                focus=focus,
                session_id=context.session_id,
                reserve=context.reserve,
            )
        room = max(500, target - count_chars(keep) - count_chars(new))
        if not text or len(text) > max(room, count_chars(old) // 2):
            if model is not None:
                context.notify("the summary could not be used; older work is named instead")
            text = _summarize_without_model(old)
        return [*keep, SummaryItem(text[:room], len(old)), *new]


def get_token_limit(context: MutationContext) -> int:
    """What a request may use of the window, in tokens: the rest is for the reply."""
    window = context.card.window
    return window - min(context.card.max_output, int(window * REPLY_SHARE))


def count_tail_items(items: Sequence[Item], budget: int) -> int:
    """How many items at the end stay as they are: whole rounds, as many as fit, at least one."""
    length, used = 0, 0
    for position in range(len(items) - 1, -1, -1):
        used += count_chars([items[position]])
        begins_round = isinstance(items[position], AssistantItem) or is_pin(items[position])
        if used > budget and length:
            break
        if begins_round:
            length = len(items) - position
    return length


def _shrink_further(items: list[Item]) -> Iterator[list[Item]]:
    """Ever harder cuts of what tools and the model said."""
    yield trim_old_items(items, 0)
    for limit in (2_000, 500, 120):
        items = truncate_replies(truncate_results(items, limit), limit)
        yield items


def _force_fit(items: list[Item], limit: int) -> list[Item]:
    """The last resort: large messages of the user lose their middle, then the oldest go."""
    for longest in (8_000, 2_000, 500, 120):
        if count_chars(items) <= limit:
            return items
        items = truncate_user_messages(items, longest)
    return items if count_chars(items) <= limit else _keep_newest(items, limit)


def _keep_newest(items: list[Item], target: int) -> list[Item]:
    """When even the pins do not fit: the newest words that do, and a sentence about the rest."""
    tail = items[len(items) - max(count_tail_items(items, target // 2), 1) :]
    words = collect_user_messages(items[: len(items) - len(tail)])
    used = count_chars(tail)
    kept: list[str] = []
    while words and used + len(words[-1]) < target - 300:
        used += len(words[-1]) + len(MESSAGE_SEPARATOR)
        kept.insert(0, words.pop())
    note = SummaryItem("Earlier messages are out of view; recall finds them.", len(items))
    return [note, *([make_user_messages_notice(kept)] if kept else []), *tail]


def _summarize_without_model(items: Sequence[Item]) -> str:
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


def _fixed_tokens(context: MutationContext, estimator: TokenEstimator, token_limit: int) -> int:
    """Tokens of the instructions and tools, which leave something of the room."""
    fixed = estimator.tokens_for_chars(context.overhead_chars)
    if fixed >= token_limit:
        raise ContextTooLong(
            f"the instructions and tools alone need about {fixed:,} tokens, and {context.card.name} "
            f"has room for {token_limit:,}; choose a model with a larger window, or fewer tools",
            provider=context.card.name,
        )
    return fixed


def _failed_attempt_message(attempts: int, used: int, token_limit: int) -> str:
    line = (
        f"a compaction would hardly make the context smaller ({used:,} of {token_limit:,} tokens)"
    )
    if attempts < MAX_FAILED_ATTEMPTS:
        return f"{line}; it was not done"
    return f"{line}; no more is tried until it is full. /clear or a larger model helps"
