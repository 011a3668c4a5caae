"""Background sessions, the supervisor and the run killed; the module runs more, at random."""

from collections.abc import Iterator

import pytest

from tests.faults.background_kills import TARGETS, find_supervisor, kill, kill_session, reply
from treadle.testing.provider import ProviderServer


@pytest.fixture(autouse=True)
def no_supervisor_is_left() -> Iterator[None]:
    yield
    kill(find_supervisor())


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
async def test_whoever_is_killed_nothing_is_lost_and_nothing_is_done_twice(target: str):
    killed = 0
    async with ProviderServer(reply) as server:
        for number, moment in enumerate((1, 12, 24, 36)):
            killed += await kill_session(server, number, moment, target)
        assert server.violations == []
    assert killed
