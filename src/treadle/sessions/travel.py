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
from treadle.sessions.family import parent_of, root_of
from treadle.sessions.folding import Folding
from treadle.sessions.journal import Journal, read_numbered
from treadle.sessions.library import Library
from treadle.sessions.lines import Parent, decode
from treadle.sessions.reading import Reading, segments


class TurnMark(msgspec.Struct, frozen=True):
    """A turn that is in the view: where it began, what was said, and the files around it.

    `before` and `after` name trees of checkpoints; empty if none was taken.
    """

    turn_id: str
    number: int
    seq: int
    time: float
    text: str = ""
    before: str = ""
    after: str = ""


def turns(place: Path) -> list[TurnMark]:
    """The turns that are still in the view, oldest first."""
    found: list[TurnMark] = []
    for line, entry in read_numbered(place):
        match entry:
            case TurnBegan(turn_id=turn_id):
                found.append(TurnMark(turn_id, len(found) + 1, line.seq, line.time))
            case Rewound(turn_id=turn_id):
                for position, mark in enumerate(found):
                    if mark.turn_id == turn_id:
                        del found[position:]
                        break
            case ItemAdded(item=UserItem() as item) if found and not found[-1].text:
                found[-1] = msgspec.structs.replace(found[-1], text=item.text)
            case Checkpoint(turn_id=turn_id, tree=tree) if found:
                if found[-1].turn_id == turn_id:
                    found[-1] = _with_tree(found[-1], tree)
            case _:
                pass
    return found


def _with_tree(mark: TurnMark, tree: str) -> TurnMark:
    if not mark.before:
        return msgspec.structs.replace(mark, before=tree)
    return msgspec.structs.replace(mark, after=tree)


def turn(place: Path, name: str) -> TurnMark:
    """A turn by its id, or by its number as a list shows it; -1 is the last one."""
    known = turns(place)
    for mark in known:
        if name in (mark.turn_id, str(mark.number), str(mark.number - len(known) - 1)):
            return mark
    raise StoreError(
        f"session {place.name} has no turn {name!r}; it has {len(known)}, from 1 to {len(known)}"
    )


async def rewind(journal: Journal, turn_id: str) -> View:
    """Go back to before this turn, durably; what a driver goes on from.

    The log keeps what came after. End the driver that is at work first.
    """
    await journal.flush()
    if all(mark.turn_id != turn_id for mark in turns(journal.place)):
        raise StoreError(f"session {journal.session_id} has no turn {turn_id!r} to go back to")
    journal.append(Rewound(turn_id))
    await journal.flush()
    return view_of(journal.place)


def fork(
    library: Library, place: Path, *, folder: Path, before: str | None = None
) -> tuple[Journal, View]:
    """A new session with this one's history, up to before a turn or to the end.

    Nothing is copied, and the parent does not change. `folder` is where the fork will work.
    """
    if parent_of(place) is not None:
        raise StoreError(
            f"session {place.name} is a child agent's, which goes when its parent goes: "
            f"fork that one, {root_of(place).name}"
        )
    if before is None:
        reading = Reading(place)
        for _ in reading.lines():
            pass
        upto = reading.seq
    else:
        upto = turn(place, before).seq - 1
    journal = library.create(folder, parent=Parent(place.name, upto))
    return journal, view_of(place, upto=upto)


def view_of(place: Path, *, upto: int | None = None) -> View:
    """What a session's log amounts to, without opening it for writing."""
    return Folding(Reading(place, upto=upto)).view()


def trees(place: Path) -> set[str]:
    """Every checkpoint that a session's own log names, gone back from or not."""
    found: set[str] = set()
    for path in segments(place):
        with path.open("rb", buffering=1 << 20) as file:
            for raw in file:
                if b'"kind":"checkpoint"' in raw[:120]:
                    entry = decode(raw)
                    if isinstance(entry, Checkpoint):
                        found.add(entry.tree)
    return found
