"""Other benchmarks of this repository, whose output goes to the page as it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.results import Results
from benchmarks.peers.rounds import run_rounds

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 600.0


class Script(NamedTuple):
    """`environment` is a folder of this checkout, which `made_by` makes."""

    title: str
    arguments: str
    environment: str = ".venv"
    made_by: str = "scripts/environment dev"

    @property
    def command(self) -> str:
        return f"PYTHONPATH=. {self.environment}/bin/python benchmarks/{self.arguments}"


STEADY = {
    "terminal": Script("Terminal bytes of a reply", "terminal_bytes.py --seconds 5"),
    "cache": Script("Cached share of a long session", "cache.py"),
    "waiting": Script("Fleet, runs that wait for an approval", "fleet.py waiting"),
}
FLEET = {
    "sessions": Script("PostgreSQL sessions at once", "fleet.py sessions"),
    "dbos": Script("Fleet, engine dbos", "fleet.py steps runs --runs 100"),
    "ray": Script(
        "Fleet, engine ray", "fleet.py runs --engine ray --runs 30", ".tools/ray",
        "scripts/ray-tests",
    ),
}  # fmt: skip
SCRIPTS = STEADY | FLEET


def measure_repository(results: Results, rounds: int) -> None:
    """What counts bytes gives the same figures each time: one round."""

    def run(name: str) -> dict[str, Any]:
        row = run_script(SCRIPTS[name])
        results.add(name, "repository", 0, row)
        return row

    run_rounds("repository", STEADY, 1, run)
    run_rounds("fleet", FLEET, rounds, run)


def run_script(script: Script) -> dict[str, Any]:
    python = ROOT / script.environment / "bin/python"
    if not python.exists():
        return {"failed": f"not run: {script.made_by} makes its environment"}
    path, *arguments = script.arguments.split()
    command = [str(python), str(ROOT / "benchmarks" / path), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failed": f"longer than {LIMIT:.0f} s"}
    row = {"printed": done.stdout.strip()}
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["a goal was missed"]
        row["failed"] = f"exit code {done.returncode}: {last[0][:200]}"
    return row


def describe_repository(table: Any) -> str:
    """Their output as it is, with a line for what failed."""
    note = "Measure: `repository`. What the commands print, one block for each round."
    parts = ["### Other benchmarks of this repository", note]
    for name, script in SCRIPTS.items():
        parts.append(f"{script.title}: `{script.command}`")
        for cell in table.cells(name, "repository", 0):
            text = "\n".join(cell[key] for key in ("printed", "failed") if cell.get(key))
            parts.append(f"```text\n{text}\n```")
        if not table.cells(name, "repository", 0):
            parts.append("Not run.")
    return "\n\n".join(parts)
