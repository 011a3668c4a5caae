"""When its terminal is closed, the program ends, and its commands too."""

import asyncio
import os

import pytest

from tests.apps.tui.closed_terminal import ClosableTerminal, is_running, make_replies
from tests.patience import until
from treadle.apps.tui.inline import InlineDriver
from treadle.testing.provider.server import ProviderServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.parametrize("has_signal", [True, False])
@pytest.mark.parametrize("mode", ["", "--inline"])
async def test_the_program_and_its_commands_end_with_the_terminal(mode, has_signal):
    seconds = 1_000_000 + os.getpid()
    async with ProviderServer(make_replies(seconds), strict=False) as server:
        given = [one for one in (mode, "--allow=Bash") if one]
        on = ClosableTerminal(server, *given, has_signal=has_signal)
        await asyncio.to_thread(on.work, seconds)
        await asyncio.to_thread(on.close)
        await until(lambda: not is_running(seconds), "the end of the command")


def test_a_frame_for_a_terminal_that_is_gone_is_no_error_of_the_app():
    master, terminal = os.openpty()
    driver = object.__new__(InlineDriver)
    driver._file = os.fdopen(terminal, "w", buffering=1)
    os.close(master)
    driver.write("a frame\n")
    driver.flush()
    with pytest.raises(OSError, match="Input/output error"):
        driver._file.close()
