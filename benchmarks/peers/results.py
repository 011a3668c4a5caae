"""The figures of a run: every single measurement, with the machine and the versions."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from typing import Any


class Results:
    """`rows` is name -> measure -> size -> measurements, in the order they were made."""

    def __init__(self, machine: dict[str, Any]) -> None:
        self.machine = machine
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self.rows: dict[str, dict[str, dict[str, list[dict[str, Any]]]]] = {}
        self._parts: dict[str, Results] = {}
        self._began = time.monotonic()

    def part(self, name: str) -> Results:
        """A table of its own: the programs, the growth."""
        return self._parts.setdefault(name, Results({}))

    def add(self, name: str, measure: str, size: int, row: dict[str, Any]) -> None:
        rounded = {key: round_figure(value) for key, value in row.items()}
        measured = self.rows.setdefault(name, {}).setdefault(measure, {})
        measured.setdefault(str(size), []).append(rounded)
        shown = ("wall", "cpu", "peak_mb", "mb", "failed", "error", "recovers", "printed")
        figures = ", ".join(f"{key} {rounded[key]}" for key in shown if key in rounded)
        spent = time.monotonic() - self._began
        print(f"{spent:6.0f} s  {name} {measure} {size or ''}: {figures}", file=sys.stderr)

    def as_json(self) -> dict[str, Any]:
        whole = {
            "machine": self.machine,
            "versions": self.versions,
            "missing": self.missing,
            "libraries": self.rows,
        }
        return whole | {name: part.rows for name, part in self._parts.items()}


def round_figure(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def describe_machine() -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": find_processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "python": platform.python_version(),
    }


def find_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown")
