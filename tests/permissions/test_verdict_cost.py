from pathlib import Path

import pytest

from benchmarks.verdict import (
    LINES,
    MAX_CALLS,
    MAX_FILES,
    count_calls,
    decide,
    fill_folder,
    make_policy,
)


@pytest.mark.parametrize("kind", MAX_FILES)
@pytest.mark.parametrize("line", LINES)
def test_a_verdict_walks_the_line_once_through_few_files(line: str, kind: str, tmp_path: Path):
    fill_folder(kind, str(tmp_path))
    policy = make_policy(str(tmp_path))
    decide(policy, line, str(tmp_path))
    _, seen = count_calls(policy, line, str(tmp_path))
    assert seen.total() <= MAX_CALLS
    assert len(seen) <= MAX_FILES[kind]


def test_a_configuration_that_changes_between_two_verdicts_is_seen(tmp_path: Path):
    fill_folder("repository", str(tmp_path))
    policy = make_policy(str(tmp_path))
    config = tmp_path / ".git" / "config"
    plain = config.read_bytes()
    assert decide(policy, "git status", str(tmp_path)) == "Allow"
    config.write_bytes(plain + b"[core]\n\tfsmonitor = ./x\n")
    assert decide(policy, "git status", str(tmp_path)) == "Ask"
    config.write_bytes(plain)
    assert decide(policy, "git status", str(tmp_path)) == "Allow"
