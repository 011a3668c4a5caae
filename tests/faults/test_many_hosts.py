"""Several programs of one user at once; `python -m tests.faults.many_hosts 500` does more."""

import pytest

from tests.faults.many_hosts import work_together


@pytest.mark.slow
async def test_five_hosts_on_one_home_lose_nothing_of_what_each_did(
    monkeypatch: pytest.MonkeyPatch,
):
    await work_together(1, 40, monkeypatch)
