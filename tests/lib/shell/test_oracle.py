import shutil

import pytest

from benchmarks.shell_lines import Lines
from benchmarks.shell_oracle import compare
from benchmarks.shell_sandbox import Ground

LINES = 250


@pytest.mark.skipif(
    not (shutil.which("strace") and shutil.which("bash")), reason="needs bash and strace"
)
@pytest.mark.parametrize("seed", [11, 12])
def test_bash_runs_and_writes_nothing_that_was_not_listed(seed):
    ground = Ground()
    try:
        understood, failures = compare(Lines(seed).take(LINES), ground)
    finally:
        ground.close()
    assert failures == []
    assert understood > LINES / 4, "a reader that doubts everything proves nothing"
