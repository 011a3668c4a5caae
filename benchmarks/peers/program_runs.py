"""What the programs cost: their version, one reply, shell turns, and a long session continued.

The script by hand takes part in each round. A first run of each, which makes its databases and
caches, does not count.
"""

from __future__ import annotations

import json
import tempfile
import urllib.request
from pathlib import Path
from typing import Any, Protocol

from benchmarks.peers.environments import PROGRAMS as NPM_FOLDERS
from benchmarks.peers.environments import Environments, NotInstalled
from benchmarks.peers.install_size import (
    measure_environment,
    measure_interpreter,
    measure_size,
)
from benchmarks.peers.programs import ALL_EXTRAS, BASELINE, PROGRAMS, Invocation, Place, measure
from benchmarks.peers.results import Results
from benchmarks.peers.rounds import run_rounds


class ProgramSizes(Protocol):
    @property
    def shell_turns(self) -> int: ...
    @property
    def session_turns(self) -> int: ...
    @property
    def rounds(self) -> int: ...


def measure_programs(
    made: Environments, names: list[str], sizes: ProgramSizes, results: Results, url: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="treadle-peers-") as folder:
        runs = ProgramRuns(made, sizes, results, url, Path(folder))
        runs.measure([name for name in names if name not in (BASELINE, *results.missing)])


class ProgramRuns:
    def __init__(
        self, made: Environments, sizes: ProgramSizes, results: Results, url: str, folder: Path
    ) -> None:
        self._made = made
        self._sizes = sizes
        self._results = results.part("programs")
        self._missing = results.missing
        self._url = url
        self._folder = folder

    def measure(self, names: list[str]) -> None:
        usable = [BASELINE, *(name for name in names if self._warm_up(name))]
        self._results.add(ALL_EXTRAS, "size", 0, self._measure_size(ALL_EXTRAS))
        with_shell = [name for name in usable if PROGRAMS[name].has_shell]
        self._repeat(usable[1:], "version", 0)
        self._repeat(usable, "reply", 0)
        self._repeat(with_shell, "shell", self._sizes.shell_turns)
        turns = self._sizes.session_turns
        resumable = []
        for name in with_shell:
            if self._invocation(name, 0).resume:
                long_session = self._run(name, "shell", turns)
                if "failed" in long_session:
                    self._results.add(name, "resume", turns, long_session)
                else:
                    resumable.append(name)
        self._repeat(resumable, "resume", turns)

    def _warm_up(self, name: str) -> bool:
        """Whether the program answers; its first run may write settings and caches."""
        try:
            first = self._run(name, "reply", 0)
        except NotInstalled as problem:
            self._missing[name] = str(problem)
            return False
        if "failed" in first:
            self._results.add(name, "reply", 0, first)
            return False
        self._results.add(name, "size", 0, self._measure_size(name))
        return True

    def _repeat(self, names: list[str], job: str, turns: int) -> None:
        def run(name: str) -> dict[str, Any]:
            row = self._run(name, job, turns)
            self._results.add(name, job, turns, row)
            return row

        run_rounds(f"programs, {job}", names, self._sizes.rounds, run)

    def _run(self, name: str, job: str, turns: int) -> dict[str, Any]:
        turns = 0 if job == "resume" else turns  # one more reply
        place = self._place(name, turns)
        invocation = self._invocation(name, turns)
        arguments = {
            "version": ["--version"],
            "reply": invocation.run,
            "shell": invocation.run,
            "resume": invocation.resume or [],
        }[job]
        request(self._url + "/reset", b"")
        row = measure([*invocation.program, *arguments], place, invocation.variables)
        counted = request(self._url + "/statistics")
        if "failed" not in row and job != "version":
            row |= counted
            if counted["requests"] <= turns:
                wanted = f"{counted['requests']} requests, at least {turns + 1} were expected"
                row["failed"] = wanted
        return row

    def _place(self, name: str, turns: int) -> Place:
        home, project = self._folder / name / "home", self._folder / name / "project"
        for folder in (home, project):
            folder.mkdir(parents=True, exist_ok=True)
        return Place(home, project, f"{self._url}/turns-{turns}_tool-bash")

    def _invocation(self, name: str, turns: int) -> Invocation:
        return PROGRAMS[name].prepare(self._made, self._place(name, turns))

    def _measure_size(self, name: str) -> dict[str, Any]:
        try:
            if (NPM_FOLDERS / name).exists():
                row = measure_size(self._made.program(name) / "node_modules")
            else:
                is_extra = name == ALL_EXTRAS
                own = self._made.python(name) if is_extra else self._invocation(name, 0).program[0]
                row = measure_environment(Path(own)) | {"interpreter_mb": measure_interpreter()}
        except NotInstalled as problem:
            return {"failed": str(problem)}
        return row | {"whole_mb": sum(row.values())}


def request(url: str, data: bytes | None = None) -> dict[str, Any]:
    with urllib.request.urlopen(url, data) as response:
        found: dict[str, Any] = json.load(response)
        return found
