"""The entries of the log, and the view that is computed from them.

The log is append-only and is the source of truth. Each entry records one event; `fold_entries`
reads them in order and returns what a driver needs to continue: the transcript, the decisions on
open calls, the intents without an outcome, the parts that the provider rejected. Sequence numbers,
checksums and files belong to the stores. Used by core/loop, sessions/ and the stores.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from treadle.core.transcript.items import Item, Metadata, NoticeItem, ToolResultItem, UserItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import NO_USAGE, TURN_PURPOSES, CallPurpose, Usage

EffectClass = Literal["pure", "verifiable", "irreversible"]
# "headless": no user could be asked. "": written by version 0.1, which did not record it.
DecidedBy = Literal["", "user", "headless", "hook"]


class ItemAdded(msgspec.Struct, frozen=True, tag="item", tag_field="kind"):
    """The transcript grew by one item."""

    item: Item


class InputQueued(msgspec.Struct, frozen=True, tag="queued", tag_field="kind"):
    """A message arrived while the agent was working; it is not in the transcript yet."""

    item: UserItem | NoticeItem


class InputDropped(
    msgspec.Struct, frozen=True, tag="unqueued", tag_field="kind", omit_defaults=True
):
    """A queued message does not enter the transcript: a hook blocked it, or the user withdrew it.
    `index` is its position among the queued ones."""

    index: int = 0


class InputMoved(msgspec.Struct, frozen=True, tag="moved", tag_field="kind"):
    """The user gave a queued message another place; both are positions among the queued ones."""

    index: int
    to: int


class TurnBegan(msgspec.Struct, frozen=True, tag="turn", tag_field="kind", omit_defaults=True):
    turn_id: str
    agent: str = ""  # the name of the agent


class Intent(msgspec.Struct, frozen=True, tag="intent", tag_field="kind", omit_defaults=True):
    """A call is about to have its effect. `evidence` is what a probe will compare. `raw` holds the
    arguments of the run if they differ from the model's: edited, changed by a hook, forwarded.
    `is_assumed`: the log is damaged where the intent would be; the call may or may not have run.
    `is_withdrawn`: the intent could not be made durable in time, so the call did not run."""

    call_id: str
    tool: str
    idempotency_key: str = msgspec.field(name="key")
    effect: EffectClass
    evidence: dict[str, Any] = {}
    raw: str | None = None
    is_assumed: bool = False
    is_withdrawn: bool = False


class EarlyResult(msgspec.Struct, frozen=True, tag="settled", tag_field="kind"):
    """A call ended while an earlier call of its round is still running: the result is durable now
    and enters the transcript later, in the model's order."""

    result: ToolResultItem


class ApprovalDecision(
    msgspec.Struct, frozen=True, tag="ruling", tag_field="kind", omit_defaults=True
):
    """The decision on a call. `raw` holds the arguments if they were edited."""

    call_id: str
    decision: Literal["allow", "deny"]
    reason: str = ""
    raw: str | None = None
    always: bool = False
    decided_by: DecidedBy = ""


class ViewRewritten(
    msgspec.Struct, frozen=True, tag="compaction", tag_field="kind", omit_defaults=True
):
    """Items [start, stop) of the view are replaced. The old items stay in the log.

    `is_repair`: the old items break a law, so an Uncompacted does not bring them back. `length` is
    that of the old view, so that items which a damaged log lost before are noticed; 0: written by
    an earlier version.
    """

    mutator: str
    start: int
    stop: int
    items: tuple[Item, ...]
    is_repair: bool = False
    length: int = 0


class Uncompacted(msgspec.Struct, frozen=True, tag="uncompact", tag_field="kind"):
    """The view is the whole history again; all replacements are undone."""


class Rewound(msgspec.Struct, frozen=True, tag="rewind", tag_field="kind"):
    """The view is again what it was before this turn began; messages that wait are dropped."""

    turn_id: str


class Quarantined(msgspec.Struct, frozen=True, tag="quarantine", tag_field="kind"):
    """A provider rejected this part of the view; it is not sent again."""

    position: int
    part: int
    reason: str


class NoticeShown(msgspec.Struct, frozen=True, tag="notice", tag_field="kind"):
    """One line that was shown to the user."""

    text: str


class Restore(msgspec.Struct, frozen=True, omit_defaults=True):
    """Files that go back: `tree` is where they go, `seq` the first entry of the turn concerned.

    An undo takes back this turn, a rewind this one and all later ones, a redo an earlier restore:
    that of the entry `of` (0, from earlier versions: the last one). `is_partial`: it left
    files alone that the user had changed, maybe all.
    """

    action: Literal["undo", "rewind", "redo"]
    seq: int
    tree: str
    of: int = 0
    is_partial: bool = False


class Checkpoint(
    msgspec.Struct, frozen=True, tag="checkpoint", tag_field="kind", omit_defaults=True
):
    """The state of the files at this point.

    Before and after the work of a turn (earlier versions do not say `side`), or, with `restore`,
    before files go back; then there is no turn. `agent_files`, after a turn: the changed files that
    only the agent can have changed; the other ones changed while a command of the agent ran.
    `user_files`: the user changed these last, the agent may have changed them before (if they are
    among `agent_files`, too, it has); `tree` has them as they were before the work.
    """

    turn_id: str
    tree: str
    side: Literal["", "before", "after"] = ""
    restore: Restore | None = None
    agent_files: tuple[str, ...] = ()
    user_files: tuple[str, ...] = ()


class UsageRecorded(msgspec.Struct, frozen=True, tag="usage", tag_field="kind", omit_defaults=True):
    """What one model call used, and what it was for; "": written by an earlier version."""

    model: str
    usage: Usage
    purpose: CallPurpose | Literal[""] = ""


class ChildUsageRecorded(msgspec.Struct, frozen=True, tag="child_usage", tag_field="kind"):
    """What a child agent used in one model call. `session_id` is the child's; its own session, if
    it has one, has the same call as a UsageRecorded."""

    session_id: str
    model: str
    usage: Usage


class HeadRecorded(msgspec.Struct, frozen=True, tag="head", tag_field="kind", omit_defaults=True):
    """What the last request began with, before its items: a later process keeps to it, or says what
    a change costs. `system` and `definitions` (of the tools) are checksums. `is_unattended`,
    only of earlier versions: the instructions say that the user cannot answer. The last three are
    sizes in characters: the instructions without the memory files, the memory files, the
    definitions of the tools."""

    model: str
    system: int
    tools: tuple[str, ...]
    definitions: int
    thinking: int | str | None = None
    is_unattended: bool = False
    system_chars: int = 0
    memory_chars: int = 0
    tools_chars: int = 0


class WakeCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a suspended turn waits for: a time (`at`, seconds since 1970), a file (`path`) that
    appears, an answer of the user, or a larger budget."""

    on: Literal["time", "file", "answer", "money"]
    at: float = 0.0
    path: str = ""


class Suspended(msgspec.Struct, frozen=True, tag="parked", tag_field="kind", omit_defaults=True):
    """The turn waits on disk and the process may end. The next entry of the turn ends the wait."""

    turn_id: str
    reason: Literal["rate_limit", "approval", "question", "budget", "other"]
    wake: WakeCondition
    detail: str = ""


class TurnEnded(msgspec.Struct, frozen=True, tag="end", tag_field="kind", omit_defaults=True):
    turn_id: str
    reason: str
    detail: str = ""


Entry = (
    ItemAdded
    | InputQueued
    | InputDropped
    | InputMoved
    | TurnBegan
    | Intent
    | EarlyResult
    | ApprovalDecision
    | ViewRewritten
    | Uncompacted
    | Rewound
    | Quarantined
    | NoticeShown
    | Checkpoint
    | UsageRecorded
    | ChildUsageRecorded
    | HeadRecorded
    | Suspended
    | TurnEnded
)


class TurnProgress(msgspec.Struct, frozen=True):
    """Rounds, calls and usage of a turn, and the caller's metadata. A round counts when its last
    call has a result."""

    rounds: int = 0
    calls: int = 0
    usage: Usage = Usage()
    metadata: Metadata = {}
    child_usage: Usage = Usage()


class View(msgspec.Struct, frozen=True):
    """The state that the log describes: all that a driver needs to continue.

    `turn_progress` is that of the open turn, or of the last one. `history` is the transcript
    without any replacement; None while there was no replacement.
    """

    transcript: Transcript = msgspec.field(default_factory=Transcript)
    decisions: dict[str, ApprovalDecision] = {}
    intents: dict[str, Intent] = {}
    early_results: dict[str, ToolResultItem] = {}
    quarantine: frozenset[tuple[int, int]] = frozenset()
    usage: Usage = Usage()
    turns: int = 0
    open_turn: str | None = None
    queued: tuple[UserItem | NoticeItem, ...] = ()
    suspended: Suspended | None = None
    history: Transcript | None = None
    turn_progress: TurnProgress = TurnProgress()
    request_head: HeadRecorded | None = None
    child_usage: Usage = Usage()


def fold_entries(entries: Iterable[Entry], view: View | None = None) -> View:
    """Compute the view from entries, in order. The cost depends on the entries, not on the view."""
    start = view or View()
    transcript = start.transcript
    rulings, intents = dict(start.decisions), dict(start.intents)
    settled, quarantine, usage = dict(start.early_results), set(start.quarantine), start.usage
    turns, open_turn, queued = start.turns, start.open_turn, list(start.queued)
    parked, history, head = start.suspended, start.history, start.request_head
    progress = start.turn_progress
    rounds, calls, used = progress.rounds, progress.calls, progress.usage
    metadata = progress.metadata
    child_usage, used_by_children = start.child_usage, progress.child_usage
    before_turn: dict[str, tuple[Transcript, frozenset[tuple[int, int]], Transcript | None]] = {}
    for entry in entries:
        match entry:
            case ItemAdded(item=item):
                transcript, parked = transcript.append(item), None
                history = history.append(item) if history is not None else None
                if queued and queued[0] == item:
                    queued.pop(0)
                if isinstance(item, ToolResultItem):
                    rulings.pop(item.call_id, None)
                    intents.pop(item.call_id, None)
                    settled.pop(item.call_id, None)
                    calls += 1
                    rounds += not isinstance(pending(transcript), RunTools)
                elif isinstance(item, UserItem) and item.metadata:
                    metadata = {**metadata, **item.metadata}
            case InputQueued(item=said):
                queued.append(said)
            case InputDropped(index=index):
                del queued[index : index + 1]
            case InputMoved(index=index, to=to):
                if index < len(queued):
                    queued.insert(to, queued.pop(index))
            case TurnBegan(turn_id=turn_id):
                before_turn[turn_id] = (transcript, frozenset(quarantine), history)
                turns, open_turn, parked = max(turns + 1, _turn_number(turn_id)), turn_id, None
                rounds, calls, used, metadata = 0, 0, Usage(), {}
                used_by_children = Usage()
            case Intent(is_withdrawn=True):
                intents.pop(entry.call_id, None)
            case Intent():
                intents[entry.call_id] = entry
            case EarlyResult(result=result):
                settled[result.call_id] = result
            case ApprovalDecision():
                rulings[entry.call_id] = entry
            case ViewRewritten():
                if not entry.is_repair:
                    whole = transcript if history is None else history
                    history = _keep_summary(whole, transcript, entry)
                transcript = apply_rewrite(transcript, entry)
                quarantine.clear()
            case Uncompacted():
                transcript, history = history if history is not None else transcript, None
                quarantine.clear()
            case Rewound(turn_id=turn_id) if turn_id in before_turn:
                transcript, kept, history = before_turn[turn_id]
                quarantine, open_turn, parked = set(kept), None, None
                rulings.clear()
                intents.clear()
                settled.clear()
                queued.clear()
            case Quarantined():
                quarantine.add((entry.position, entry.part))
            case UsageRecorded():
                usage += entry.usage
                if not entry.purpose or entry.purpose in TURN_PURPOSES:
                    used += entry.usage
            case ChildUsageRecorded():
                child_usage += entry.usage
                used_by_children += entry.usage
            case HeadRecorded():
                head = entry
            case Suspended():
                parked = entry
            case TurnEnded():
                open_turn = parked = None
                rulings.clear()
                intents.clear()
                settled.clear()
            case _:
                pass
    return View(
        transcript,
        rulings,
        intents,
        settled,
        frozenset(quarantine),
        usage,
        turns,
        open_turn,
        tuple(queued),
        parked,
        history,
        TurnProgress(rounds, calls, used, metadata, used_by_children),
        head,
        child_usage,
    )


def list_entries(view: View) -> list[Entry]:
    """Entries of a new log that describe this view: `fold_entries` makes it of them again. What a
    compaction replaced is in them; the limits between earlier turns are not."""
    entries: list[Entry] = []
    add = entries.append
    progress = view.turn_progress
    before = view.usage - progress.usage
    if before != NO_USAGE:
        add(UsageRecorded("", before))
    children_before = view.child_usage - progress.child_usage
    if children_before != NO_USAGE:
        add(ChildUsageRecorded("", "", children_before))
    history = view.transcript if view.history is None else view.history
    entries += [ItemAdded(item) for item in history]
    begin = len(entries)
    if view.history is not None:
        add(diff_views("snapshot", view.history, view.transcript))
        begin = len(entries)
    elif view.open_turn is not None:
        begin -= _count_turn_items(history)
    if view.turns:
        entries.insert(begin, TurnBegan(view.open_turn or make_turn_id(view.turns)))
    if progress.usage != NO_USAGE:
        add(UsageRecorded("", progress.usage))
    if progress.child_usage != NO_USAGE:
        add(ChildUsageRecorded("", "", progress.child_usage))
    for position, part in sorted(view.quarantine):
        add(Quarantined(position, part, ""))
    if view.open_turn is None and view.turns:
        add(TurnEnded(make_turn_id(view.turns), "end_turn"))
    entries += [*view.decisions.values(), *view.intents.values()]
    entries += [EarlyResult(result) for result in view.early_results.values()]
    entries += [InputQueued(item) for item in view.queued]
    return entries


def _count_turn_items(history: Transcript) -> int:
    """How many items the last turn has: those from its first message on."""
    for position in range(len(history) - 1, -1, -1):
        item = history[position]
        if isinstance(item, UserItem) and not item.steered:
            return len(history) - position
    return len(history)


def make_turn_id(number: int) -> str:
    return f"turn-{number}"


def _turn_number(turn_id: str) -> int:
    """The number in an id, so that no id comes twice if the line of another turn is lost."""
    number = turn_id.removeprefix("turn-")
    return int(number) if number.isdecimal() else 0


def apply_rewrite(transcript: Transcript, change: ViewRewritten) -> Transcript:
    # Items that are lost were most likely among the old ones that are replaced. If not, an item is
    # kept that the replacement covers too, but none is lost.
    stop = max(change.start, change.stop - _count_lost_items(transcript, change))
    return Transcript([*transcript[: change.start], *change.items, *transcript[stop:]])


def _count_lost_items(transcript: Transcript, change: ViewRewritten) -> int:
    """How many items a damaged log has lost before this replacement."""
    return max(0, change.length - len(transcript))


def _keep_summary(history: Transcript, transcript: Transcript, change: ViewRewritten) -> Transcript:
    """The history that an Uncompacted brings back: of items that are lost, the summary is left."""
    if not _count_lost_items(transcript, change):
        return history
    before = transcript[: change.start]
    is_same = len(history) >= len(before) and all(map(operator.is_, history, before))
    start = change.start if is_same else 0
    return Transcript([*history[:start], *change.items, *history[start:]])


def diff_views(mutator: str, old: Transcript, new: Transcript) -> ViewRewritten:
    """The smallest single replacement that turns the old view into the new one."""
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] is new[start]:
        start += 1
    tail = 0
    while tail < shorter - start and old[-1 - tail] is new[-1 - tail]:
        tail += 1
    items = tuple(new[start : len(new) - tail])
    return ViewRewritten(mutator, start, len(old) - tail, items, length=len(old))
