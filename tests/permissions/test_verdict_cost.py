from pathlib import Path

import pytest

from benchmarks.verdict import LINES, MAX_CALLS, MAX_FILES, count_calls, decide, make_policy


@pytest.mark.parametrize("line", LINES)
def test_a_verdict_walks_the_line_once_through_few_files(line: str, tmp_path: Path):
    (tmp_path / "a.txt").touch()
    policy = make_policy(str(tmp_path))
    decide(policy, line, str(tmp_path))
    _, seen = count_calls(policy, line, str(tmp_path))
    assert seen.total() <= MAX_CALLS
    assert len(seen) <= MAX_FILES
