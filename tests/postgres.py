"""A PostgreSQL server of Debian's package for the tests: in a folder of its own, on a socket there.

The server refuses to run as root; then it runs as the user `postgres`, which the package made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

USER = "treadle"
MISSING = "PostgreSQL is not installed: run scripts/debian-packages, or apt install postgresql"

# One worker starts the server; to make its folder takes a second.
GROUP = "postgres"
ON_POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.xdist_group(GROUP))


def find_programs() -> Path | None:
    """The folder of initdb and pg_ctl, of the newest version; Debian keeps it out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: p.parts[-3])
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path is not None else None


class PostgresServer:
    """Started in a new temporary folder. `stop` and `start` again is a restart."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="treadle-pg-"))
        self._identity: dict[str, str] = {}
        if os.getuid() == 0:
            self._identity = {"user": "postgres", "group": "postgres"}
            shutil.chown(self.folder, "postgres", "postgres")
        self._data = self.folder / "data"
        self._names = count(1)
        self._run("initdb", "-D", str(self._data), "-U", USER, "-A", "trust", "--no-sync")
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(
                f"listen_addresses = ''\nunix_socket_directories = '{self.folder}'\n"
                "max_connections = 60\nshared_buffers = '32MB'\n"
            )

    def start(self) -> None:
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self._data), "-l", log, "-w", "-s", "start")

    def stop(self, *, mode: str = "fast") -> None:
        """`immediate` is a crash: open transactions are lost, and the start has to recover."""
        self._run("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "-s", "stop")

    def create_database(self, template: str = "template0") -> str:
        """The address of a new database; an empty one without a template."""
        name = f"t{next(self._names)}"
        self.query(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.make_url(name)

    def make_url(self, name: str) -> str:
        return f"postgresql://{USER}@/{name}?host={quote(str(self.folder), safe='')}"

    def query(self, sql: str, database: str = "postgres") -> str:
        return self._run("psql", "-h", str(self.folder), "-U", USER, "-Atqc", sql, database).strip()

    def remove(self) -> None:
        subprocess.run(
            [self._programs / "pg_ctl", "-D", self._data, "-m", "immediate", "-s", "stop"],
            check=False,
            capture_output=True,
            cwd=self.folder,
            **self._identity,  # type: ignore[call-overload]
        )
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> str:
        # Output to a file: the server inherits a pipe, and reading it would not end.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [self._programs / program, *arguments],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                **self._identity,  # type: ignore[call-overload]
            )
            output.seek(0)
            text = output.read()
        assert done.returncode == 0, f"{program} failed: {text}"
        return text


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[PostgresServer]:
    """One server for all tests of a process; do not stop it."""
    yield from _serve()


@pytest.fixture
def postgres_server() -> Iterator[PostgresServer]:
    """A server for one test, which may stop it."""
    yield from _serve()


@pytest.fixture
def postgres_url(shared_postgres: PostgresServer) -> str:
    """The address of an empty database."""
    return shared_postgres.create_database()


def _serve() -> Iterator[PostgresServer]:
    programs = find_programs()
    if programs is None:
        pytest.skip(MISSING)
    server = PostgresServer(programs)
    try:
        server.start()
        yield server
    finally:
        server.remove()
