"""Random sessions: the live state is what the log says. See session_fuzz.py."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.session_fuzz import fuzz_session

COUNT = int(os.environ.get("TREADLE_FUZZ_SESSIONS", "200"))


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: thousands of syncs."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else tmp_path))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("seed", [400_008_340])  # the log lost all that a summary replaced
def test_sessions_that_once_differed_have_the_state_that_their_logs_say(
    seed: int, memory_folder: Path
) -> None:
    asyncio.run(fuzz_session(seed, memory_folder))


@pytest.mark.slow
@pytest.mark.timeout(60 + COUNT)
def test_random_sessions_have_the_state_that_their_logs_say(memory_folder: Path) -> None:
    first = 0 if os.environ.get("CI") else random.randrange(1_000_000_000)
    for seed in range(first, first + COUNT):
        asyncio.run(fuzz_session(seed, memory_folder))
