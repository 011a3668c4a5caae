"""Rewind a session to before a turn, or fork it into a new one.

Both only append: a rewind is an entry of the same log; a fork is a new log that begins with the
entries of its parent. workspace/checkpoints restores files; this module only knows which
checkpoints belong to which turn.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from treadle.core.errors import StoreError
from treadle.core.transcript.content import Text
from treadle.core.transcript.entries import Checkpoint, Forked, ItemAdded, Rewound, TurnBegan
from treadle.core.transcript.entry_json import decode_entry
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem, UserItem
from treadle.core.transcript.recover import recover_fork, repair_entries
from treadle.core.transcript.state import SessionState, fold_entries
from treadle.lib.text.text import plural
from treadle.sessions.children import find_parent, find_root
from treadle.sessions.library import Library
from treadle.sessions.log.journal import Journal, read_records
from treadle.sessions.log.reader import JournalReader, list_segments, open_segment
from treadle.sessions.log.records import ForkPoint, parse_record
from treadle.sessions.log.state_loader import StateLoader, read_entry

LONG_BYTES = 2 << 20  # a shorter log is loaded as fast
END_BYTES = 128 << 10


class TurnInfo(msgspec.Struct, frozen=True):
    """A turn in the view: its first entry, the user's message, and its checkpoints.

    `checkpoint_before` and `checkpoint_after` name trees; empty if none was taken.
    """

    turn_id: str
    number: int
    seq: int
    time: float
    text: str = ""
    checkpoint_before: str = ""
    checkpoint_after: str = ""


def list_turns(session_dir: Path) -> list[TurnInfo]:
    """The turns that are still in the view, oldest first."""
    turns: list[TurnInfo] = []
    corrections: set[str] = set()
    kinds = ("turn", "rewind", "checkpoint", "item")
    for record, entry in read_records(session_dir, kinds=kinds):
        match entry:
            case TurnBegan(turn_id=turn_id, continues=False):
                turns.append(TurnInfo(turn_id, len(turns) + 1, record.seq, record.time))
            case TurnBegan(turn_id=turn_id):
                corrections.add(turn_id)
            case Rewound(turn_id=turn_id):
                for position, turn in enumerate(turns):
                    if turn.turn_id == turn_id:
                        del turns[position:]
                        break
            case ItemAdded(item=UserItem() as item) if turns and not turns[-1].text:
                turns[-1] = msgspec.structs.replace(turns[-1], text=item.first_text)
            case Checkpoint(turn_id=turn_id, tree=tree) if turns:
                if turns[-1].turn_id == turn_id or turn_id in corrections:
                    side = "after" if turns[-1].checkpoint_before else "before"
                    turns[-1] = msgspec.structs.replace(turns[-1], **{f"checkpoint_{side}": tree})
            case _:
                pass
    return turns


def find_turn(session_dir: Path, name: str) -> TurnInfo:
    """A turn by its id, or by its number as in a list; -1 is the last one."""
    turns = list_turns(session_dir)
    for turn in turns:
        if name in (turn.turn_id, str(turn.number), str(turn.number - len(turns) - 1)):
            return turn
    count = plural(len(turns), "turn")
    raise StoreError(f"session {session_dir.name} has no turn {name!r}; it has {count}")


async def rewind(journal: Journal, turn_id: str) -> SessionState:
    """Go back to before this turn, durably; returns the state to continue from.

    The log keeps the later entries. Close the running driver first.
    """
    await journal.flush()
    if all(turn.turn_id != turn_id for turn in list_turns(journal.session_dir)):
        raise StoreError(f"session {journal.session_id} has no turn {turn_id!r}")
    journal.append(Rewound(turn_id))
    await journal.flush()
    state, recovery = StateLoader(JournalReader(journal.session_dir)).load_recovered()
    for entry in recovery:
        journal.append(entry)
    await journal.flush()
    return state


def fork(
    library: Library,
    session_dir: Path,
    *,
    folder: Path,
    before_turn: str | None = None,
    last_seq: int | None = None,
) -> tuple[Journal, SessionState]:
    """A new session with the history of this one, up to before a turn, to an entry or to the end.

    `folder` is where the fork will work. See `fork_journal`.
    """
    _require_root(session_dir)
    turn_id = None if before_turn is None else find_turn(session_dir, before_turn).turn_id

    def create(point: ForkPoint) -> Journal:
        return library.create(folder, parent=point)

    return fork_journal(session_dir, create, turn_id, last_seq)


def _require_root(session_dir: Path) -> None:
    if find_parent(session_dir) is not None:
        raise StoreError(
            f"session {session_dir.name} belongs to a child agent and is removed with its parent: "
            f"fork that one, {find_root(session_dir).name}"
        )


class CallRound(msgspec.Struct, frozen=True):
    """The entry of a reply, its turn, and the results of its calls, in order."""

    seq: int
    turn: TurnInfo
    results: tuple[ToolResultItem, ...]


def find_round(session_dir: Path, call_id: str) -> CallRound:
    """The round with this call, which has a result, in a turn that is still in the view."""
    seq, call_ids, results = 0, list[str](), dict[str, ToolResultItem]()
    for record, entry in read_records(session_dir, kinds=("item",)):
        match entry:
            case ItemAdded(item=AssistantItem() as reply) if call_id in [c.id for c in reply.calls]:
                seq, call_ids = record.seq, [call.id for call in reply.calls]
            case ItemAdded(item=ToolResultItem() as result):
                results[result.call_id] = result
    turns = [turn for turn in list_turns(session_dir) if turn.seq < seq]
    if not turns or any(one not in results for one in call_ids):
        raise StoreError(f"session {session_dir.name} has no call {call_id!r} with a result")
    return CallRound(seq, turns[-1], tuple(results[one] for one in call_ids))


async def fork_at_result(
    library: Library, session_dir: Path, *, folder: Path, call_id: str, text: str
) -> str:
    """The id of a new session in which this call was answered with `text`. Its turn is open and
    continues from there, as that of a process that was killed."""
    _require_root(session_dir)
    found = find_round(session_dir, call_id)
    reader = JournalReader(session_dir, last_seq=found.seq)
    state = StateLoader(reader).load()
    point = ForkPoint(session_dir.name, found.seq, reader.head.decode())
    journal = library.create(folder, parent=point)
    for entry in (*repair_entries(state), Forked(session_dir.name)):
        journal.append(entry)
    for result in found.results:
        is_edited = result.call_id == call_id
        new = ToolResultItem(call_id, result.name, (Text(text),)) if is_edited else result
        journal.append(ItemAdded(new))
    await journal.aclose()
    return journal.session_id


def fork_journal(
    session_dir: Path,
    create: Callable[[ForkPoint], Journal],
    before_turn: str | None = None,
    last_seq: int | None = None,
) -> tuple[Journal, SessionState]:
    """A new journal that begins with the entries of another one, up to before the turn with this
    id, or to an entry: nothing is copied, and the other one does not change. What that one has open
    ends here."""
    if before_turn is not None:
        seqs = [turn.seq for turn in list_turns(session_dir) if turn.turn_id == before_turn]
        last_seq = seqs[-1] - 1
    reader = JournalReader(session_dir, last_seq=last_seq)
    state = StateLoader(reader).load()
    seq = reader.seq if last_seq is None else last_seq
    journal = create(ForkPoint(session_dir.name, seq, reader.head.decode()))
    entries = recover_fork(state, session_dir.name)
    for entry in entries:
        journal.append(entry)
    return journal, fold_entries(entries, state)


def read_state(session_dir: Path, *, last_seq: int | None = None) -> SessionState:
    """The view of a session, without opening it for writing."""
    return StateLoader(JournalReader(session_dir, last_seq=last_seq)).load()


def list_checkpoint_trees(session_dir: Path) -> set[str]:
    """Every checkpoint that the session's own log names, also of turns that were rewound."""
    trees: set[str] = set()
    for path in list_segments(session_dir):
        with open_segment(path) as file:
            for raw in file:
                if b'"kind":"checkpoint"' in raw[:120]:
                    entry = decode_entry(raw)
                    if isinstance(entry, Checkpoint):
                        trees.add(entry.tree)
                        trees |= {entry.restore.tree} if entry.restore else set()
    return trees


def read_last_items(session_dir: Path) -> list[Item]:
    """The items at the end of a long log, enough to show it at once; none if it is short, or if the
    end was rewound. The session itself is loaded from the beginning."""
    segments = list_segments(session_dir)
    if not segments or segments[-1].stat().st_size < LONG_BYTES:
        return []
    with segments[-1].open("rb") as file:
        file.seek(-END_BYTES, os.SEEK_END)
        lines = file.read().split(b"\n")[1:-1]  # the first one and the last one may be cut
    items: list[Item] = []
    for line in lines:
        record = parse_record(line)
        entry = None if record is None else read_entry(record, session_dir)
        if isinstance(entry, Rewound):
            return []
        if isinstance(entry, ItemAdded):
            items.append(entry.item)
    return items
