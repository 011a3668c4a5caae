"""The suites need no test runner."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, sys, unittest
from treadle import testing

for name in testing.__all__:
    getattr(testing, name)
assert "pytest" not in sys.modules

class Test(unittest.IsolatedAsyncioTestCase):
    async def test_observer(self):
        await testing.check_observer(testing.RecordingObserver)

    async def test_broken_observer(self):
        with self.assertRaisesRegex(AssertionError, "observer: accepts every event and item"):
            await testing.check_observer(testing.FailingObserver)

unittest.main()
"""


def test_the_suites_run_under_unittest_without_pytest():
    command = [sys.executable, "-P", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_suites_do_not_pass_silently_where_assert_is_off():
    program = """
import asyncio
from treadle.testing import FailingObserver, check_observer
asyncio.run(check_observer(FailingObserver))
"""
    done = subprocess.run(
        [sys.executable, "-O", "-P", "-c", program], capture_output=True, text=True
    )
    assert "run them without `python -O`" in done.stderr
