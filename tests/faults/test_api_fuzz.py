"""Random sessions over the public API, killed at any write: all laws hold. See api_fuzz.py."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres import MISSING, find_programs

ROOT = Path(__file__).parents[2]
COUNT = int(os.environ.get("TREADLE_FUZZ_SESSIONS", "0"))  # 0: those of each store


@pytest.mark.slow
@pytest.mark.timeout(1200 + 2 * COUNT)
@pytest.mark.parametrize(("store", "count"), [("journal", 65), ("sqlite", 65), ("postgresql", 12)])
def test_random_sessions_keep_every_law_in_every_store(store: str, count: int) -> None:
    if store == "postgresql" and find_programs() is None:
        pytest.skip(MISSING)
    count = COUNT or count
    first = 0 if os.environ.get("CI") else random.randrange(1_000_000_000)
    # A process of its own, without threads, so that it can fork.
    words = ["-m", "tests.faults.api_fuzz", str(count), "--store", store]
    words += ["--first", str(first), "--kills", str(count // 20)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4_000:] + done.stdout[-4_000:]
