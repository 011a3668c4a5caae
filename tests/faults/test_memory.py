"""A long session holds what was said once, and the view within its bounds; nothing piles up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_rounds_with_large_outputs_hold_what_they_printed_once_and_no_more(own_place: Path) -> None:
    """In a process of its own, because memory that was given back is rarely given to the system.

    Journal, compaction and encoding for the wire take part; 10,000 rounds are the benchmark's. So
    few rounds leave room for what the allocator keeps; what is held twice takes more than two.
    """
    measured = subprocess.run(
        [
            sys.executable,
            ROOT / "benchmarks/memory.py",
            "--rounds",
            "300",
            "--size",
            "60000",
            "--most",
            "1.9",
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"MALLOC_ARENA_MAX": "1"},  # threads would keep freed memory in arenas
    )
    assert (measured.returncode, measured.stderr) == (0, ""), measured.stdout
    assert measured.stdout.endswith("holds\n")
