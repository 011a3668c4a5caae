"""Going back in a session, and leaving it for another: rewind and fork.

Both only append: a rewind is an entry of the same log, a fork a new log that begins with the
other's entries. What happened to the files is the checkpoints' business; here is only which of
them belongs to which turn.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from treadle.core.errors import StoreError
from treadle.core.transcript.entries import Checkpoint, ItemAdded, Rewound, TurnBegan, View
from treadle.core.transcript.items import UserItem
from treadle.sessions.children import find_parent, find_root
from treadle.sessions.library import Library
from treadle.sessions.log.journal import Journal, read_records
from treadle.sessions.log.reader import JournalReader, list_segments
from treadle.sessions.log.records import ForkPoint, decode_entry
from treadle.sessions.log.view_loader import ViewLoader


class TurnInfo(msgspec.Struct, frozen=True):
    """A turn that is in the view: where it began, what was said, and the files around it.

    `before` and `after` name trees of checkpoints; empty if none was taken.
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
    found: list[TurnInfo] = []
    for line, entry in read_records(session_dir):
        match entry:
            case TurnBegan(turn_id=turn_id):
                found.append(TurnInfo(turn_id, len(found) + 1, line.seq, line.time))
            case Rewound(turn_id=turn_id):
                for position, mark in enumerate(found):
                    if mark.turn_id == turn_id:
                        del found[position:]
                        break
            case ItemAdded(item=UserItem() as item) if found and not found[-1].text:
                found[-1] = msgspec.structs.replace(found[-1], text=item.text)
            case Checkpoint(turn_id=turn_id, tree=tree) if found:
                if found[-1].turn_id == turn_id:
                    found[-1] = _add_checkpoint(found[-1], tree)
            case _:
                pass
    return found


def _add_checkpoint(turn: TurnInfo, tree: str) -> TurnInfo:
    if not turn.checkpoint_before:
        return msgspec.structs.replace(turn, checkpoint_before=tree)
    return msgspec.structs.replace(turn, checkpoint_after=tree)


def find_turn(session_dir: Path, name: str) -> TurnInfo:
    """A turn by its id, or by its number as a list shows it; -1 is the last one."""
    known = list_turns(session_dir)
    for mark in known:
        if name in (mark.turn_id, str(mark.number), str(mark.number - len(known) - 1)):
            return mark
    raise StoreError(
        f"session {session_dir.name} has no turn {name!r}; it has {len(known)}, from 1 to {len(known)}"
    )


async def rewind(journal: Journal, turn_id: str) -> View:
    """Go back to before this turn, durably; what a driver goes on from.

    The log keeps what came after. End the driver that is at work first.
    """
    await journal.flush()
    if all(mark.turn_id != turn_id for mark in list_turns(journal.session_dir)):
        raise StoreError(f"session {journal.session_id} has no turn {turn_id!r} to go back to")
    journal.append(Rewound(turn_id))
    await journal.flush()
    return load_view(journal.session_dir)


def fork(
    library: Library, session_dir: Path, *, folder: Path, before_turn: str | None = None
) -> tuple[Journal, View]:
    """A new session with this one's history, up to before a turn or to the end.

    Nothing is copied, and the parent does not change. `folder` is where the fork will work.
    """
    if find_parent(session_dir) is not None:
        raise StoreError(
            f"session {session_dir.name} is a child agent's, which goes when its parent goes: "
            f"fork that one, {find_root(session_dir).name}"
        )
    if before_turn is None:
        reading = JournalReader(session_dir)
        for _ in reading.records():
            pass
        upto = reading.seq
    else:
        upto = find_turn(session_dir, before_turn).seq - 1
    journal = library.create(folder, parent=ForkPoint(session_dir.name, upto))
    return journal, load_view(session_dir, last_seq=upto)


def load_view(session_dir: Path, *, last_seq: int | None = None) -> View:
    """What a session's log amounts to, without opening it for writing."""
    return ViewLoader(JournalReader(session_dir, last_seq=last_seq)).load()


def list_checkpoint_trees(session_dir: Path) -> set[str]:
    """Every checkpoint that a session's own log names, gone back from or not."""
    found: set[str] = set()
    for path in list_segments(session_dir):
        with path.open("rb", buffering=1 << 20) as file:
            for raw in file:
                if b'"kind":"checkpoint"' in raw[:120]:
                    entry = decode_entry(raw)
                    if isinstance(entry, Checkpoint):
                        found.add(entry.tree)
    return found
