"""Where the children of a library session are stored: with the session of their parent.

    a folder        SESSION/children/CHILD, as the command line stores them
    a database      in the same one            a function   makes their stores, too

The children of a session in an own Store, and of a run without a session, are not stored; a program
can store them with `open_store`. Sessions register here while they are open. Used by session.py and
subagents.py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from treadle.core.contracts.store import Store

if TYPE_CHECKING:
    from treadle.sessions.open_store import StoreLocation

# The name of a service that a host may provide: a dict that holds the drivers of the children at
# work, by the id of their session. With it the host can steer and interrupt them.
RUNNING_CHILDREN = "running_children"

_locations: dict[str, StoreLocation] = {}  # of the children, by the session of their parent
_owners: dict[str, object] = {}


def register_session(session_id: str, location: StoreLocation | None, owner: object) -> None:
    """A session is open: its children are stored beside it. Of two with the same id, which are in
    different places, the first is meant."""
    place = _find_child_location(session_id, location)
    if place is not None and session_id not in _locations:
        _locations[session_id] = place
        _owners[session_id] = owner


def unregister_session(session_id: str, owner: object) -> None:
    if _owners.get(session_id) is owner:
        del _locations[session_id], _owners[session_id]


async def open_child_store(parent_id: str, call_id: str) -> Store | None:
    """The store of the child of a call: a new one, or the one that was made before."""
    location = _locations.get(parent_id)
    if location is None:
        return None
    from treadle.sessions.children import make_child_session_id
    from treadle.sessions.open_store import open_store

    return (await open_store(location, make_child_session_id(parent_id, call_id))).store


def register_child(parent_id: str, store: Store | None) -> None:
    """A child is at work: its own children are stored beside it."""
    if store is not None and parent_id in _locations:
        register_session(store.session_id, _locations[parent_id], store)


def unregister_child(store: Store | None) -> None:
    if store is not None:
        unregister_session(store.session_id, store)


def _find_child_location(session_id: str, location: StoreLocation | None) -> StoreLocation | None:
    if location is None or isinstance(location, (str, os.PathLike)):
        from treadle.sessions.children import CHILDREN_DIR
        from treadle.sessions.open_store import DATABASE_SCHEMES, DATABASE_SUFFIXES, find_place

        if isinstance(location, str) and location.startswith(DATABASE_SCHEMES):
            return location
        place = find_place(location)
        is_database = place.suffix in DATABASE_SUFFIXES
        return place if is_database else place / session_id / CHILDREN_DIR
    return location if callable(location) else None
