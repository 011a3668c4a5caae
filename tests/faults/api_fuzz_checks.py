"""What has to hold for a fuzzed session: its state, its messages, its effects, its log.

Everything is computed anew, from the entries of the log and the lines of the ledger. An
AssertionError says what does not hold. Used by api_fuzz_user.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.faults.api_fuzz_agent import EFFECTS, Ledger
from treadle.apps.cli.commands.replay import replay_recording
from treadle.core.contracts.wrapped import find_innermost
from treadle.core.loop.driver import Driver
from treadle.core.transcript.entries import (
    Entry,
    Forked,
    InputDropped,
    InputQueued,
    ItemAdded,
    Rewound,
    TurnBegan,
    UsageRecorded,
)
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.items import ToolResultItem, UserItem
from treadle.core.transcript.state import SessionState, TurnState, find_differences, fold_entries
from treadle.core.transcript.usage import NO_USAGE
from treadle.sessions.history import read_state
from treadle.sessions.log.journal import Journal
from treadle.sessions.replay import split_recordings


async def check_live(driver: Driver) -> list[Entry]:
    """The live state is the fold of the log, and lawful; the entries of the log."""
    log, state, entries = driver.log, None, list[Entry]()
    while state is not driver.state:  # a background task may end meanwhile
        state = driver.state
        await log.flush()
        entries = list(await log.load())
    compare(driver.state, fold_entries(entries), "the live state and the log")
    store = find_innermost(log)
    if isinstance(store, Journal) and entries:
        check_loader(store.session_dir, entries)
    check_usage(driver.state, entries)
    assert find_violations(driver.transcript) == [], "the view breaks a law"
    return entries


def check_loader(session_dir: Path, entries: Sequence[Entry]) -> None:
    """The loader, which decodes few lines, computes the same state as a plain fold."""
    compare(read_state(session_dir), fold_entries(entries), "the loader and the log")


def compare(one: SessionState, other: SessionState, what: str) -> None:
    names = find_differences(one, other)
    values = [f"{name}: {getattr(one, name, '')!r:.400} and {getattr(other, name, '')!r:.400}"
              for name in names]  # fmt: skip
    assert not names, f"{what} differ in {'; '.join(values)}"


def check_usage(state: SessionState, entries: Sequence[Entry]) -> None:
    """What was spent in this session, not in the one that it was forked from, is its usage."""
    total = NO_USAGE
    for entry in find_own_entries(entries):
        if isinstance(entry, UsageRecorded):
            total = total + entry.usage
    assert total == state.usage, f"usage: {total} in the log, {state.usage} live"


def find_own_entries(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Those after the last fork."""
    forks = [place for place, entry in enumerate(entries) if isinstance(entry, Forked)]
    return entries[forks[-1] :] if forks else entries


def check_messages(session_id: str, entries: Sequence[Entry], ledger: Ledger) -> None:
    """No message enters twice, none that was acknowledged is lost, no withdrawn one enters."""
    entered = [entry for entry in entries if isinstance(entry, ItemAdded)]
    entered = [entry for entry in entered if isinstance(entry.item, UserItem)]
    texts = Counter([get_text(entry) for entry in entered])
    # Those of the engine, such as what it asks when an output does not fit, have one text.
    own = {text: count for text, count in texts.items() if text.startswith(("message", "task"))}
    twice = [text for text, count in own.items() if count > 1]
    assert not twice, f"messages that entered twice: {twice!r:.200}"
    ids = Counter([entry.message_id for entry in entered if entry.message_id])
    assert max(ids.values(), default=1) == 1, f"ids that came twice: {ids}"
    withdrawn = {one.name for one in ledger.read("withdrawn")} & own.keys()
    assert not withdrawn, f"withdrawn, but entered: {withdrawn!r:.200}"
    known = {text for text in _find_kept(entries) if text}
    acknowledged = [one for one in ledger.read("acknowledged") if one.session == session_id]
    lost = [one.name for one in acknowledged if one.name not in known]
    assert not lost, f"acknowledged, but lost: {lost!r:.200}"


def _find_kept(entries: Sequence[Entry]) -> set[str]:
    """The messages whose place is known: entered, waiting, withdrawn, refused or rewound."""
    waiting = {one.id for one in fold_entries(entries).queued}
    dropped = {entry.message_id for entry in entries if isinstance(entry, InputDropped)}
    rewinds = [place for place, entry in enumerate(entries) if isinstance(entry, Rewound)]
    last_rewind = rewinds[-1] if rewinds else -1
    kept = {get_text(entry) for entry in entries if isinstance(entry, ItemAdded)}
    for place, entry in enumerate(entries):
        if isinstance(entry, InputQueued):
            is_known = entry.message_id in waiting | dropped or place < last_rewind
            kept |= {get_text(entry)} if is_known else set()
    return kept


def get_text(entry: ItemAdded | InputQueued) -> str:
    return entry.item.text if isinstance(entry.item, UserItem) else ""


def check_effects(ledger: Ledger) -> None:
    """No effect happened twice, by the engine's keys or by the model's amounts."""
    effects = ledger.read("effect")
    keys = Counter([effect.name for effect in effects])
    amounts = Counter([effect.amount for effect in effects if effect.amount])
    twice = [key for key, count in keys.items() if count > 1]
    assert not twice, f"effects that happened twice: {twice}"
    twice_paid = [effect for effect in effects if amounts[effect.amount] > 1]
    assert not twice_paid, f"amounts that were paid twice: {twice_paid}"


def check_results(session_id: str, entries: Sequence[Entry], ledger: Ledger) -> None:
    """A call that is said to be done had its effect, a call that was denied had none."""
    effects = ledger.read("effect")
    keys, amounts = {effect.name for effect in effects}, {effect.amount for effect in effects}
    turn_id = ""
    own = {id(entry) for entry in find_own_entries(entries)}
    for entry in entries:
        if isinstance(entry, TurnBegan):
            turn_id = TurnState(entry.turn_id, nonce=entry.nonce).key
        if not isinstance(entry, ItemAdded) or id(entry) not in own:
            continue
        item = entry.item
        if not isinstance(item, ToolResultItem) or item.name not in EFFECTS:
            continue
        key = f"{session_id}/{turn_id}/{item.call_id}"
        is_begun = bool(item.data and "task_id" in item.data)
        if item.outcome == "denied":
            assert key not in keys, f"{key} was denied, and happened"
        elif item.outcome == "finished" and not item.is_error and not is_begun:
            # By its amount: a fork has the results of the other session's open round.
            amount = int(item.text.split()[1])
            assert amount in amounts, f"{key} did not happen: {item!r:.300}"
        elif item.outcome == "recovered" and not item.is_error:
            found = [one for one in keys if one.endswith(f"/{turn_id}/{item.call_id}")]
            assert found, f"{key} did not happen: {item!r:.300}"


def check_log(session_id: str, entries: Sequence[Entry], ledger: Ledger) -> None:
    """All that can be said about the log of one session; it need not be open."""
    if ledger.read("damaged"):
        return  # any line may be lost, and a log is repaired when it is opened
    state = fold_entries(entries)
    assert find_violations(state.transcript) == [], "the view of the log breaks a law"
    check_usage(state, entries)
    check_messages(session_id, entries, ledger)
    check_results(session_id, entries, ledger)


async def check_replay(session_id: str, entries: Sequence[Entry], ledger: Ledger) -> None:
    """The loop comes to the same transcript with the recorded replies and results."""
    if ledger.read("damaged"):
        return
    for recording in split_recordings(entries):
        difference = await replay_recording(recording)
        assert difference is None, f"the replay of {session_id} differs: {difference!r:.600}"


def check_fork(entries: Sequence[Entry]) -> None:
    """A fork has nothing open, nothing waiting and nothing spent."""
    state = fold_entries(entries)
    assert state.turn is None, "the fork has an open turn"
    assert state.queued == (), "the fork took queued messages"
    assert state.usage == NO_USAGE == state.child_usage, "the fork took what was spent"
    assert find_violations(state.transcript) == [], "the fork breaks a law"
