"""The plain tasks of benchmarks/embedded: their checks tell done from not done; a run counts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.embedded import run

TASKS = {task.name: task for task in run.read_tasks()}
IDLE = (sys.executable, "-c", "")
CHANGES = {
    "fix": ("add.py", "a - b", "a + b"),
    "rename": ("shop.py", "calc_total", "total_price"),
    "pass": ("text.py", '"_"', '"-"'),
    "setting": ("config.json", "8080", "9090"),
    "pop": ("stack.py", "pop(0)", "pop()"),
    "import": ("a.py", "import os\n", ""),
}
FILES = {
    "tests": ("test_fib.py", "from fib import fib\n\n\ndef test_fib():\n    assert fib(7) == 13\n"),
    "script": ("hello.py", "for n in range(1, 6):\n    print(n)\n"),
}
ANSWERS = {"where": "m.py and n.py", "port": "It listens on port 9000."}


def test_each_task_has_a_solution_here():
    assert len(TASKS) == 10
    assert TASKS.keys() == CHANGES.keys() | FILES.keys() | ANSWERS.keys()


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_done_when_it_is_solved_and_not_before(name: str, tmp_path: Path):
    task = TASKS[name]
    task.write_files(tmp_path)
    assert not task.is_done(tmp_path, "It is done.")
    if name in CHANGES:
        path, old, new = CHANGES[name]
        (tmp_path / path).write_text(task.files[path].replace(old, new))
    elif name in FILES:
        path, text = FILES[name]
        (tmp_path / path).write_text(text)
    assert task.is_done(tmp_path, ANSWERS.get(name, "It is done."))


def test_a_changed_test_is_no_repair(tmp_path: Path):
    task = TASKS["fix"]
    task.write_files(tmp_path)
    (tmp_path / "add.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "test_add.py").write_text("")
    assert not task.is_done(tmp_path, "It is done.")


def test_a_program_that_does_nothing_and_says_success_is_counted(
    capsys: pytest.CaptureFixture[str],
):
    run.run_tasks("any", ["fix", "port"], IDLE)
    shown = capsys.readouterr().out
    assert "| fix | no | 0 | " in shown
    assert "0 of 2 done by embedded/any; 2 not done with exit code 0" in shown


def test_a_task_has_its_limit_of_time():
    waits = (sys.executable, "-c", "import signal; signal.pause()")
    ran = run.run_task(TASKS["port"], waits, seconds=0.1)
    assert (ran.code, ran.is_done, ran.is_false_success) == (run.TIMED_OUT, False, False)
