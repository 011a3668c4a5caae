"""When its terminal is closed, the program ends, and its commands too."""

import asyncio
import os
import time

import pytest

from tests.apps.tui.closed_terminal import ClosableTerminal, is_running, make_replies
from tests.patience import PATIENCE
from treadle.testing.provider.server import ProviderServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.parametrize("has_signal", [True, False])
@pytest.mark.parametrize("mode", ["", "--inline"])
async def test_the_program_and_its_commands_end_with_the_terminal(mode, has_signal):
    seconds = 1_000_000 + os.getpid()
    async with ProviderServer(make_replies(seconds), strict=False) as server:
        given = [one for one in (mode, "--allow=Bash") if one]
        on = ClosableTerminal(server, *given, has_signal=has_signal)
        await asyncio.to_thread(on.work)
        assert is_running(seconds)
        await asyncio.to_thread(on.close)
        deadline = time.monotonic() + PATIENCE
        while is_running(seconds):
            assert time.monotonic() < deadline, "the command is left behind"
            await asyncio.sleep(0.02)
