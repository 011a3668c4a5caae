"""What the programs cost: their version, one reply, shell turns, and a long session continued.

Each measurement of a program follows one of the script by hand. A first run of each, which makes
its databases and caches, does not count.
"""

from __future__ import annotations

import json
import tempfile
import urllib.request
from pathlib import Path
from typing import Any, Protocol

from benchmarks.peers.environments import PROGRAMS as NPM_FOLDERS
from benchmarks.peers.environments import Environments, NotInstalled
from benchmarks.peers.install_size import measure_size
from benchmarks.peers.programs import BASELINE, PROGRAMS, Invocation, Place, measure
from benchmarks.peers.results import Results

SLOW_SECONDS = 4.0  # a measurement above it is not repeated


class ProgramSizes(Protocol):
    @property
    def shell_turns(self) -> int: ...
    @property
    def session_turns(self) -> int: ...
    @property
    def repeat(self) -> int: ...


def measure_programs(
    made: Environments, names: list[str], sizes: ProgramSizes, results: Results, url: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="treadle-peers-") as folder:
        runs = ProgramRuns(made, sizes, results.part("programs"), url, Path(folder))
        for name in names:
            if name == BASELINE or name in results.missing:
                continue
            try:
                runs.measure(name)
            except NotInstalled as problem:
                results.missing[name] = str(problem)


class ProgramRuns:
    def __init__(
        self, made: Environments, sizes: ProgramSizes, results: Results, url: str, folder: Path
    ) -> None:
        self._made = made
        self._sizes = sizes
        self._results = results
        self._url = url
        self._folder = folder

    def measure(self, name: str) -> None:
        if "failed" in (first := self._run(name, "reply", 0)):
            self._results.add(name, "reply", 0, first)
            return
        self._results.add(name, "size", 0, self._measure_size(name))
        turns = self._sizes.shell_turns
        jobs = [("version", 0), ("reply", 0)]
        jobs += [("shell", turns)] if PROGRAMS[name].has_shell else []
        for job, size in jobs:
            self._repeat(name, job, size)
        if PROGRAMS[name].has_shell and self._invocation(name, 0).resume:
            self._run(name, "shell", self._sizes.session_turns)
            for _ in range(self._sizes.repeat):
                resumed = self._run(name, "resume", 0)
                self._results.add(name, "resume", self._sizes.session_turns, resumed)

    def _repeat(self, name: str, job: str, turns: int) -> None:
        for _ in range(self._sizes.repeat):
            row = self._pair(name, job, turns)
            if "failed" in row or row["wall"] > SLOW_SECONDS:
                return

    def _pair(self, name: str, job: str, turns: int) -> dict[str, Any]:
        base = self._run(BASELINE, job, turns) if job != "version" else {}
        if base:
            self._results.add(BASELINE, job, turns, base)
        row = self._run(name, job, turns)
        row |= {f"base_{key}": base[key] for key in ("wall", "cpu") if key in base}
        self._results.add(name, job, turns, row)
        return row

    def _run(self, name: str, job: str, turns: int) -> dict[str, Any]:
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
        program = Path(self._invocation(name, 0).program[0])
        if (NPM_FOLDERS / name).exists():
            folder = self._made.program(name) / "node_modules"
        else:
            folder = next((program.parents[1] / "lib").glob("python3.*/site-packages"))
        return {"mb": measure_size(folder) / 1e6}


def request(url: str, data: bytes | None = None) -> dict[str, Any]:
    with urllib.request.urlopen(url, data) as response:
        found: dict[str, Any] = json.load(response)
        return found
