"""`treadle send`, which dies at the moment that DIES names: `before`, `in` or `after` a step."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from typing import Any

from treadle.__main__ import main
from treadle.apps.fleet.commands import session_transfer
from treadle.apps.fleet.sql.sql_transfers import SqlTransfers
from treadle.core.contracts.store import Store
from treadle.sessions.detached import transfer

STEPS: dict[str, Any] = {
    "mark_sending": transfer,
    "begin": SqlTransfers,
    "open_log": SqlTransfers,
    "_write_log": session_transfer,
    "_commit": SqlTransfers,
    "remove_sent": transfer,
    "forget": SqlTransfers,
    "_make_place": session_transfer,
    "store_files": transfer,
    "append_entries": session_transfer,
    "accept": transfer,
    "finish": transfer,
}


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Parameters:
    """Of a statement that the process does not survive."""

    def __iter__(self) -> Iterator[object]:
        die()
        return iter(())


def die_in_transaction(commit: Callable[..., Any]) -> Callable[..., Any]:
    def replaced(self: SqlTransfers, token: str, *statements: Any) -> Any:
        return commit(self, token, *statements, ("SELECT 1", Parameters()))

    return replaced


def die_in_log(open_log: Callable[..., Any]) -> Callable[..., Any]:
    """When the first entries are there."""

    async def replaced(*arguments: Any) -> Store:
        store: Store = await open_log(*arguments)
        flush = store.flush

        async def flush_and_die() -> None:
            await flush()
            die()

        store.flush = flush_and_die  # type: ignore[method-assign]
        return store

    return replaced


def die_around(step: Callable[..., Any], moment: str) -> Callable[..., Any]:
    def replaced(*arguments: Any, **options: Any) -> Any:
        if moment == "before":
            die()
        found = step(*arguments, **options)
        if not hasattr(found, "__await__"):
            die()
        return finish(found)

    async def finish(found: Any) -> None:
        await found
        die()

    return replaced


def run() -> int:
    moment, _, name = os.environ["DIES"].partition(" ")
    if moment == "in" and name in ("finish", "remove_sent"):  # its folder is moved, not more
        shutil.rmtree = die  # type: ignore[assignment]
    elif moment:
        step = getattr(STEPS[name], name)
        inside = {"_commit": die_in_transaction, "open_log": die_in_log}
        mortal = inside[name](step) if moment == "in" else die_around(step, moment)
        setattr(STEPS[name], name, mortal)
    return main()
