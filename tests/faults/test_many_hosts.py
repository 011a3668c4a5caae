"""Several programs of one user at once; `python -m tests.faults.many_hosts 500` does more."""

from pathlib import Path

import pytest

from tests.apps.tui.tmux import needs_tmux
from tests.faults.many_hosts import work_together


@needs_tmux
@pytest.mark.slow
async def test_five_hosts_on_one_home_lose_nothing_of_what_each_did(own_place: Path):
    await work_together(1, 40, own_place)
