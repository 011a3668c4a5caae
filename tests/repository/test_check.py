"""The order and the end of the stages of ./check."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from scripts import check

WAIT = "import time; time.sleep(300)"


def program(title: str, code: str, *after: check.Stage) -> check.Stage:
    return check.Stage(title, [sys.executable, "-I", "-c", code], after=after)


def test_help_is_that_of_check_and_starts_nothing():
    shown = subprocess.run([check.ROOT / "check", "--help"], capture_output=True, check=True)
    assert shown.stdout.decode().splitlines()[-1].split()[:2] == ["./check", "tests/core"]


def test_a_failure_ends_what_runs_beside_it_and_starts_nothing_more(tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    endless = program("endless", f"open({str(fifo)!r}, 'w').close(); {WAIT}")
    failing = program("failing", f"import sys; open({str(fifo)!r}).read(); sys.exit('no')")
    never = program("never", f"open({str(tmp_path / 'never')!r}, 'w')", endless)
    with closing(check.run_stages([endless, failing, never])) as reports:
        first = next(reports)
    assert (first.stage, first.exit_code) == (failing, 1)
    assert first.output.startswith("\n== failing\nno\n")
    assert not (tmp_path / "never").exists()


def test_a_stage_begins_after_those_that_it_needs(tmp_path: Path):
    made = tmp_path / "made"
    maker = program("maker", f"open({str(made)!r}, 'w')")
    user = program("user", f"open({str(made)!r})", maker)
    assert [report.exit_code for report in check.run_stages([maker, user])] == [0, 0]


def test_a_stage_that_takes_too_long_is_stopped_and_says_so():
    endless = program("endless", WAIT)._replace(limit=0.5)
    [report] = check.run_stages([endless])
    assert report.exit_code == 1
    assert "stopped after 0 s, the limit of this stage" in report.output


def test_tests_need_every_download_and_each_example_has_a_home_of_its_own(tmp_path: Path):
    stages = list(check.every_stage(False, tmp_path))
    [tests] = [stage for stage in stages if stage.prints]
    assert list(tests.after) == list(check.download_stages())
    homes = [stage.home for stage in stages if stage.home]
    assert len(homes) == len(set(homes)) > 10


@pytest.mark.parametrize("arguments", [["docs"], ["tests/core", "-k", "pending"]])
def test_only_what_was_asked_for_is_run(arguments: list[str], tmp_path: Path):
    [stage] = check.choose_stages(False, arguments, tmp_path)
    assert stage.command[-1] == arguments[-1] or stage == check.docs_stage()


def test_files_in_memory_are_gone_with_the_command(tmp_path: Path):
    code = (
        "import tempfile; tempfile.NamedTemporaryFile(delete=False); print(tempfile.gettempdir())"
    )
    command = [sys.executable, "-I", "-c", code]
    in_memory = check.with_files_in_memory(command, tmp_path)
    if in_memory == command:
        pytest.skip("this user may not mount a file system")
    assert subprocess.run(in_memory, capture_output=True, text=True).stdout == f"{tmp_path}\n"
    assert not list(tmp_path.iterdir())
