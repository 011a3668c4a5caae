"""What brings runs to workers: implementations of RunEngine (core/contracts/run_engine.py).

local   one machine: a table of the SQLite file of the fleet
dbos    many machines: queues of DBOS in the PostgreSQL database of the fleet
ray     a cluster of Ray: each run is a task of Ray, with resources of its own
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from treadle.core.errors import ConfigError

if TYPE_CHECKING:
    from treadle.apps.fleet.sql.sql_connection import SqlConnection
    from treadle.core.contracts.run_engine import RunEngine

EngineName = Literal["local", "dbos", "ray"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)


def choose_engine(url: str, wanted: str = "") -> EngineName:
    """The engine of a new fleet. ConfigError if it cannot work with this database."""
    is_file = url.startswith("sqlite:")
    for name in ENGINES:
        if name == (wanted or ("local" if is_file else "dbos")):
            if is_file != (name == "local"):
                needs = "a file: sqlite:PATH" if name == "local" else "postgresql://USER@HOST/NAME"
                raise ConfigError(f"the engine {name} needs another database; use {needs}")
            return name
    raise ConfigError(f"there is no engine {wanted!r}; there are {', '.join(ENGINES)}")


def make_engine(name: str, url: str, connection: SqlConnection) -> RunEngine:
    if name == "local":
        from treadle.apps.fleet.engines.local_engine import LocalEngine

        return LocalEngine(connection)
    if name == "ray":
        from treadle.apps.fleet.engines.ray_engine import RayEngine

        return RayEngine(connection)
    from treadle.apps.fleet.engines.dbos_engine import DbosEngine

    return DbosEngine(url)
