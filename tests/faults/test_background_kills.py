"""Background sessions, the supervisor and the run killed; the module runs more, at random."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.tui.tmux import needs_tmux, terminal_at
from tests.faults import background_hosts
from tests.faults.background_hosts import Kill, visit_hosts
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


@needs_tmux
@pytest.mark.slow
async def test_a_session_comes_through_all_hosts_whoever_is_killed(tmp_path: Path):
    rounds = [
        [Kill(0, 0, "supervisor"), Kill(8, 0, "supervisor"), Kill(20, 0, "supervisor")],
        [Kill(6, 0, "run")],
        [Kill(1, 0, "supervisor"), Kill(16, 0, "both")],
    ]
    background_hosts.prepare_folder()
    killed = 0
    async with ProviderServer(background_hosts.reply) as server:
        with terminal_at(server, tmp_path) as terminal:
            for number, kills in enumerate(rounds):
                stay = background_hosts.QUESTIONS[1]
                killed += await visit_hosts(server, terminal, number, stay, kills)
        assert server.violations == []
    assert killed
