"""The mutator that keeps a view within its model's window.

    below 0.70 of the room   nothing
    below 0.85               one warning (the trigger is a setting)
    above 0.85               trims; if that is not enough a summary; then harder cuts
    context too long         the same at once, to half of the room

The room is the window without the reply's share and without the fixed part (instructions, tools),
which compaction cannot reduce. In a very large window it ends at MAX_TRIGGER_TOKENS: a request of
that size is slow and expensive, and models overlook more of it. A compaction that saves too little
to justify a broken cache is rejected with a warning; after two in a row the next attempt is made
when the room is full. Items that leave the view stay in the log; `recall` finds them.
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
from treadle.context.compaction.recent_files import (
    MIN_FILE_CHARS,
    ReadRecentFiles,
    list_recent_files,
    make_recent_files_notice,
)
from treadle.context.compaction.summary import summarize, summarize_aside
from treadle.context.compaction.trims import (
    trim_old_items,
    truncate_replies,
    truncate_results,
    truncate_user_messages,
)
from treadle.context.token_estimator import TokenEstimator, count_chars
from treadle.core.contracts.model import Model
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.errors import CallNotAdmitted, ContextTooLong, ModelError
from treadle.core.session_cache import SessionCache
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, SummaryItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.size_estimate import estimate_text_chars
from treadle.core.transcript.transcript import Transcript

WARN_SHARE, COMPACT_SHARE, TARGET_SHARE = 0.70, 0.85, 0.50
REPLY_SHARE = 0.25  # of the window at most, whatever the model's output limit is
TAIL_SHARE = 0.30  # of the target: the newest items, which stay unchanged
FILES_SHARE = 0.15  # of the target: files that are shown again after a summary
MAX_TRIGGER_TOKENS = 400_000
MIN_SAVING_SHARE = 0.10  # of the room: less is not worth a broken cache
MAX_FAILED_ATTEMPTS = 2
MIN_CALLS_BETWEEN_SUMMARIES = 6  # a summary is a model call of its own
FRAME = (
    "The conversation before this point was cut. What the user said, notes on the rest and the "
    "newest messages follow. Continue the work, without mentioning this. `recall` finds what was "
    "cut. Read a file again before you edit it."
)


class _CompactionState:
    """State of one session: its token calibration and the failed attempts."""

    def __init__(self) -> None:
        self.estimator = TokenEstimator()
        self.failed_attempts = 0
        self.was_warned = False
        self.calls_since_summary = MIN_CALLS_BETWEEN_SUMMARIES
        self.has_failed_summary = False  # the last one


class _PutOff(Exception):
    """There is no summary now, and there is room: the view stays as it is."""


class Compactor:
    """Keeps views small. The model of the session writes the summaries, which is cheap: it has the
    conversation in its cache; or another `model`, in a request of its own.

    `compact_at` is when: above 1 a number of tokens, otherwise a share of the window.
    `read_recent_files` reads the files to show again after a summary.
    """

    def __init__(
        self,
        model: Callable[[], Model] | Model | None = None,
        *,
        compact_at: float | None = None,
        read_recent_files: ReadRecentFiles | None = None,
    ) -> None:
        self._model = model
        self._compact_at = compact_at
        self._read_recent_files = read_recent_files
        self._sessions = SessionCache(_CompactionState)

    @property
    def name(self) -> str:
        return "compaction"

    @property
    def points(self) -> frozenset[MutationPoint]:
        return frozenset({"before_model", "context_too_long", "on_request"})

    async def mutate(self, context: MutationContext) -> Transcript | None:
        if isinstance(pending(context.transcript), RunTools):
            return None  # the loop runs these calls from the view: keep their arguments whole
        session = self._sessions[context.session_id]
        used = session.estimator.estimate_request(context)
        room = get_token_limit(context)
        fixed = _fixed_tokens(context, session.estimator, room)
        room = min(room, max(2 * fixed, self._get_trigger_room(context)))
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
            context.notify("a hook blocked the compaction")
            return None
        estimator = session.estimator
        max_chars = estimator.chars_for_tokens(token_limit - 1) - context.overhead_chars
        target = int(TARGET_SHARE * max_chars)
        before = count_chars(context.transcript)
        if context.point != "before_model":
            target = min(target, before // 2)  # the estimate was wrong, or the user asked for it
        best: list[Item] = list(context.transcript)
        focus = f"{context.focus}\n{focus}".strip()
        has_room = used < get_token_limit(context) and context.point != "context_too_long"
        try:
            async for candidate in self._candidates(context, session, target, focus, has_room):
                if count_chars(candidate) < count_chars(best) and not find_violations(candidate):
                    best = candidate
                if count_chars(best) <= target:
                    break
        except _PutOff:
            return None
        if context.point != "on_request":
            # User messages are cut only if the request cannot be sent otherwise.
            is_refused = context.point == "context_too_long"
            whole = estimator.chars_for_tokens(get_token_limit(context) - 1)
            best = _force_fit(best, target if is_refused else whole - context.overhead_chars)
        after = count_chars(best)
        may_wait = context.point == "before_model" and used < token_limit
        if after >= before or (may_wait and before - after < MIN_SAVING_SHARE * max_chars):
            session.failed_attempts += 1
            context.notify(_failed_attempt_message(session.failed_attempts, used, token_limit))
            return None
        session.failed_attempts = 0
        estimator.record_sent(context.overhead_chars + after)
        saved = used * (before - after) // (context.overhead_chars + before)
        context.notify(
            f"compacted the context from about {used:,} to {used - saved:,} tokens. The model now "
            "sees a shorter history. /uncompact gives it the full one again."
        )
        return Transcript(best)

    async def _candidates(
        self,
        context: MutationContext,
        session: _CompactionState,
        target: int,
        focus: str,
        has_room: bool,
    ) -> AsyncIterator[list[Item]]:
        """Smaller views, the least lossy first."""
        items: list[Item] = list(context.transcript)
        tail = count_tail_items(items, int(target * TAIL_SHARE))
        lighter = trim_old_items(items, tail)
        if context.point != "on_request":
            yield lighter
        old, new = items[: len(items) - tail], items[len(items) - tail :]
        shorter = items
        if any(not is_pin(item) for item in old):
            pins = collect_pins(old)
            room = max(500, target - count_chars(pins) - count_chars(new))
            text = await self._write_summary(context, session, old, focus, room, has_room)
            if text:
                summary = SummaryItem(_cut_to_size(text, room), len(old))
                limit = min(room - count_chars([summary]), int(FILES_SHARE * target))
                files = await self._show_files(items, new, limit)
                shorter = [NoticeItem(FRAME, "compaction"), *pins, summary, *files, *new]
        yield shorter
        for harder in _shrink_further(shorter):
            yield harder

    async def _write_summary(
        self,
        context: MutationContext,
        session: _CompactionState,
        old: list[Item],
        focus: str,
        room: int,
        has_room: bool,
    ) -> str:
        """The summary of the older items; empty if there is none and no room to wait for the next
        attempt. Otherwise _PutOff."""
        is_early = context.point == "before_model"
        if is_early and session.calls_since_summary < MIN_CALLS_BETWEEN_SUMMARIES:
            if has_room:
                raise _PutOff
            if not session.has_failed_summary:
                return ""
        session.calls_since_summary = 0
        problem = ""
        try:
            text = await self._ask_for_summary(context, session.estimator, old, focus)
        except (ModelError, CallNotAdmitted) as error:
            text, problem = "", f": {error}"
            # A budget does not grow: what the user asked for is done without a summary.
            has_room = has_room and (is_early or isinstance(error, ModelError))
        if text and estimate_text_chars(text) <= max(room, count_chars(old) // 2):
            session.has_failed_summary = False
            return text
        session.has_failed_summary = True
        if has_room:
            later = "is put off" if is_early else "did not change the view; try it again"
            context.notify(f"there is no usable summary; the compaction {later}{problem}")
            raise _PutOff
        context.notify(f"there is no usable summary; long results are cut instead{problem}")
        return ""

    async def _ask_for_summary(
        self, context: MutationContext, estimator: TokenEstimator, old: list[Item], focus: str
    ) -> str:
        model, ids = self._model() if callable(self._model) else self._model, context.session_id
        if model is not None:
            limit = int(model.card.window * 2)  # characters: safely below the window in tokens
            call = context.call_model
            return await summarize(model, old, limit, focus=focus, session_id=ids, call_model=call)
        if context.ask_aside is None:
            return ""
        most = estimator.chars_for_tokens(get_token_limit(context) - 1) - context.overhead_chars
        sent = list_sent_items(context.transcript)
        shown = next(
            (view for view in (sent, *_shrink_further(sent)) if count_chars(view) < most), []
        )
        return await summarize_aside(context.ask_aside, shown, focus) if shown else ""

    async def _show_files(
        self, items: Sequence[Item], kept: Sequence[Item], limit: int
    ) -> list[NoticeItem]:
        if self._read_recent_files is None or limit < MIN_FILE_CHARS:
            return []
        files = await self._read_recent_files(list_recent_files(items))
        notice = make_recent_files_notice(files, kept, limit)
        return [notice] if notice is not None else []

    def _get_trigger_room(self, context: MutationContext) -> int:
        """The room in which COMPACT_SHARE is the trigger."""
        window, wanted = context.card.window, self._compact_at
        trigger = MAX_TRIGGER_TOKENS if wanted is None else wanted * (window if wanted <= 1 else 1)
        return int(trigger / COMPACT_SHARE)


def get_token_limit(context: MutationContext) -> int:
    """The tokens of the window that a request may use; the rest is for the reply."""
    window = context.card.window
    return window - min(context.card.max_output, int(window * REPLY_SHARE))


def list_sent_items(transcript: Sequence[Item]) -> list[Item]:
    """The items of the last request: those before the last reply. The newer ones stay anyway."""
    items = list(transcript)
    replies = [at for at, item in enumerate(items) if isinstance(item, AssistantItem)]
    return items[: replies[-1]] if replies else []


def count_tail_items(items: Sequence[Item], budget: int) -> int:
    """How many items at the end stay unchanged: whole rounds, as many as fit, at least one."""
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
    """Harder and harder cuts of tool results and replies."""
    yield trim_old_items(items, 0)
    for limit in (2_000, 500, 120):
        items = truncate_replies(truncate_results(items, limit), limit)
        yield items


def _force_fit(items: list[Item], limit: int) -> list[Item]:
    """The last resort: cut the middle of large user messages, then drop the oldest."""
    for longest in (8_000, 2_000, 500, 120):
        if count_chars(items) <= limit:
            return items
        items = truncate_user_messages(items, longest)
    return items if count_chars(items) <= limit else _keep_newest(items, limit)


def _keep_newest(items: list[Item], target: int) -> list[Item]:
    """When even the pins do not fit: the newest messages that do, and a note about the rest."""
    tail = items[len(items) - max(count_tail_items(items, target // 2), 1) :]
    older = collect_user_messages(items[: len(items) - len(tail)])
    used = count_chars(tail)
    newest: list[str] = []
    while older and used + estimate_text_chars(older[-1]) < target - 300:
        used += estimate_text_chars(older[-1]) + len(MESSAGE_SEPARATOR)
        newest.insert(0, older.pop())
    note = SummaryItem("Earlier messages are out of view; recall finds them.", len(items))
    return [note, *([make_user_messages_notice(newest)] if newest else []), *tail]


def _cut_to_size(text: str, limit: int) -> str:
    size = estimate_text_chars(text)
    return text if size <= limit else text[: len(text) * limit // size]


def _fixed_tokens(context: MutationContext, estimator: TokenEstimator, token_limit: int) -> int:
    """Tokens of the instructions and tools; ContextTooLong if they fill the room."""
    fixed = estimator.tokens_for_chars(context.overhead_chars)
    if fixed >= token_limit:
        raise ContextTooLong(
            f"the instructions and tools alone need about {fixed:,} tokens, but "
            f"{context.card.name} has room for {token_limit:,}; choose a model with a larger "
            "window, or fewer tools",
            provider=context.card.name,
        )
    return fixed


def _failed_attempt_message(attempts: int, used: int, token_limit: int) -> str:
    message = f"compaction skipped: it saves too little ({used:,} of {token_limit:,} tokens used)"
    if attempts < MAX_FAILED_ATTEMPTS:
        return message
    return f"{message}; the next attempt is when the context is full. Use /clear or a larger model"
