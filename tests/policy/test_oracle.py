import shutil

import pytest

from benchmarks.shell_oracle import Ground, Lines, check

LINES = 250


@pytest.mark.skipif(
    not (shutil.which("strace") and shutil.which("bash")), reason="needs bash and strace"
)
@pytest.mark.parametrize("seed", [11, 12])
def test_bash_runs_and_writes_nothing_that_was_not_listed(seed):
    lines, ground = Lines(seed), Ground()
    try:
        understood = sum(check(lines.line(), ground) for _ in range(LINES))
    finally:
        ground.close()
    assert understood > LINES / 4, "a reader that doubts everything proves nothing"
