from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from treadle.apps.fleet.tasks.task_files import DEFAULT_FIELDS, TaskDefaults, load_tasks
from treadle.core.errors import ConfigError

SWE_BENCH = {
    "instance_id": "acme__tool-7",
    "repo": "acme/tool",
    "base_commit": "abc123",
    "problem_statement": "The total is wrong.",
    "test_patch": "--- a/x\n+++ b/x\n",
    "FAIL_TO_PASS": '["test_x.py::test_total"]',
    "PASS_TO_PASS": ["test_x.py::test_rest"],
    "patch": "the solution",
    "version": "1.0",
}

PATCH = """\
diff --git a/t.sh b/t.sh
new file mode 100644
--- /dev/null
+++ b/t.sh
@@ -0,0 +1 @@
+echo it\\'s run"""


def write_lines(path: Path, *records: object) -> Path:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
    path.write_text("\n".join(lines))
    return path


def test_a_malformed_line_is_named_by_its_number_and_the_others_are_loaded(tmp_path):
    path = write_lines(
        tmp_path / "tasks.jsonl",
        {"prompt": "one", "id": "a"},
        '{"prompt": ',
        "",
        ["no object"],
        {"promt": "misspelt"},
        {"prompt": "two", "max_turns": "three"},
        {"prompt": "six", "max_cost": -1},
        "[" * 100_000,
        {"prompt": "last"},
    )
    loaded = load_tasks(path)
    assert [task.prompt for task in loaded.tasks] == ["one", "last"]
    assert [problem.line for problem in loaded.problems] == [2, 4, 5, 6, 7, 8]
    texts = [str(problem) for problem in loaded.problems]
    assert texts[0].startswith(f"{path}, line 2: it is not JSON")
    assert "no field 'promt'" in texts[2]
    assert "max_turns" in texts[3]
    assert "max_cost is -1" in texts[4]


def test_a_duplicate_id_is_one_task_and_is_named(tmp_path):
    path = write_lines(
        tmp_path / "tasks.jsonl",
        {"prompt": "one", "id": "a"},
        {"prompt": "two", "id": "a"},
        {"prompt": "same"},
        {"prompt": "same"},
    )
    loaded = load_tasks(path)
    assert [task.prompt for task in loaded.tasks] == ["one", "same"]
    assert [problem.line for problem in loaded.problems] == [2, 4]
    assert f"line 1 of {path}" in loaded.problems[0].message


def test_a_line_of_other_bytes_than_utf8_is_named(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "one"}\n{"prompt": "\xff"}\r\n{"prompt": "two"}\r\n')
    loaded = load_tasks(path)
    assert [task.prompt for task in loaded.tasks] == ["one", "two"]
    assert "UTF-8" in loaded.problems[0].message


def test_relative_paths_begin_where_the_file_is_and_urls_stay(tmp_path):
    (tmp_path / "sub").mkdir()
    path = write_lines(
        tmp_path / "sub/tasks.jsonl",
        {"prompt": "a", "folder": "../project"},
        {"prompt": "b", "repository": "https://host/x.git", "commit": "main"},
        {"prompt": "c", "repository": "git@host:x.git"},
        {"prompt": "d", "archive": "x.tar.gz"},
    )
    first, second, third, fourth = load_tasks(path).tasks
    assert first.folder == str(tmp_path / "project")
    assert second.repository == "https://host/x.git"
    assert third.repository == "git@host:x.git"
    assert fourth.archive == str(tmp_path / "sub/x.tar.gz")


def test_csv_has_labels_as_columns_and_leaves_out_empty_cells(tmp_path):
    path = tmp_path / "tasks.csv"
    path.write_text(
        "id,prompt,max_cost,max_turns,label.language,labels\n"
        'a,"say ""hi"",\nthen stop",0.5,3,python,"{""level"": ""easy""}"\n'
        "b,second,,,,\n"
        ",,,,,\n"
        "c,third,much,,,\n"
        "d,fourth,1,2,go,{},extra\n"
    )
    loaded = load_tasks(path)
    first, second = loaded.tasks
    assert first.prompt == 'say "hi",\nthen stop'
    assert (first.max_cost, first.max_turns) == (0.5, 3)
    assert first.labels == {"language": "python", "level": "easy"}
    assert second.max_cost is None
    assert [problem.line for problem in loaded.problems] == [6, 7]
    assert "7 cells" in loaded.problems[1].message


def test_a_json_file_is_an_array_whose_items_are_counted(tmp_path):
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps([{"prompt": "a"}, 7, {"prompt": "b"}]))
    loaded = load_tasks(path)
    assert [task.prompt for task in loaded.tasks] == ["a", "b"]
    assert str(loaded.problems[0]).startswith(f"{path}, item 2: ")
    (tmp_path / "bad.csv").write_bytes(b"prompt\n\xff\n")
    assert "bad.csv: it is not UTF-8" in str(load_tasks(tmp_path / "bad.csv").problems[0])


def test_defaults_fill_in_what_a_task_does_not_say_and_keep_its_id(tmp_path):
    path = write_lines(tmp_path / "t.jsonl", {"prompt": "a"}, {"prompt": "b", "model": "own"})
    plain = load_tasks(path)
    loaded = load_tasks(path, TaskDefaults(model="sonnet", max_cost=2.0, check="make test"))
    assert [task.model for task in loaded.tasks] == ["sonnet", "own"]
    assert loaded.tasks[1].check == "make test"
    assert [task.id for task in loaded.tasks] == [task.id for task in plain.tasks]


def test_a_swe_bench_line_is_a_repository_at_a_commit_with_a_check(tmp_path):
    path = write_lines(tmp_path / "t.jsonl", SWE_BENCH)
    (task,) = load_tasks(path).tasks
    assert (task.id, task.prompt) == ("acme__tool-7", "The total is wrong.")
    assert task.repository == "https://github.com/acme/tool.git"
    assert task.commit == "abc123"
    assert task.labels == {"repository": "acme/tool", "version": "1.0"}
    assert task.check is not None
    assert task.check.startswith("git checkout -q abc123 -- x || exit 1\ngit apply")
    assert task.check.endswith("python3 -m pytest -q test_x.py::test_total test_x.py::test_rest")
    assert "the solution" not in repr(task), "the agent must not see it"


def test_the_check_of_a_swe_bench_line_applies_the_patch_and_runs_the_test_command(tmp_path):
    repository = tmp_path / "copies/acme__tool"
    repository.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", repository], check=True)
    record = {**SWE_BENCH, "test_patch": PATCH, "test_command": "sh t.sh"}
    path = write_lines(tmp_path / "t.jsonl", record)
    (task,) = load_tasks(path, TaskDefaults(repositories=str(tmp_path / "copies"))).tasks
    assert task.repository == str(repository)
    ran = subprocess.run(["sh", "-c", task.check or ""], cwd=repository, capture_output=True)
    assert (ran.returncode, ran.stdout) == (0, b"it's run\n")
    again = subprocess.run(["sh", "-c", task.check or ""], cwd=repository, capture_output=True)
    assert again.returncode == 0, "a file that the agent wrote there is replaced"


def test_tests_that_the_agent_changed_are_those_of_the_patch_again(tmp_path):
    repository = tmp_path / "acme__tool"
    repository.mkdir()
    (repository / "test.sh").write_text("false\n")
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    change = "--- a/test.sh\n+++ b/test.sh\n@@ -1 +1 @@\n-false\n+test -f solved\n"
    record = {
        **SWE_BENCH,
        "base_commit": commit,
        "test_patch": change,
        "test_command": "sh test.sh",
    }
    path = write_lines(tmp_path / "t.jsonl", record)
    (task,) = load_tasks(path, TaskDefaults(repositories=str(tmp_path))).tasks
    (repository / "test.sh").write_text("true\n")
    check = ["sh", "-c", task.check or ""]
    assert subprocess.run(check, cwd=repository).returncode == 1, "not solved"
    (repository / "solved").touch()
    assert subprocess.run(check, cwd=repository).returncode == 0
    broken = {**record, "test_patch": change.replace("-false", "-other"), "instance_id": "b"}
    (task,) = load_tasks(
        write_lines(tmp_path / "t.jsonl", broken), TaskDefaults(repositories=str(tmp_path))
    ).tasks
    assert subprocess.run(["sh", "-c", task.check or ""], cwd=repository).returncode == 1


def test_a_swe_bench_line_without_a_local_copy_is_named(tmp_path):
    path = write_lines(tmp_path / "t.jsonl", SWE_BENCH, {**SWE_BENCH, "repo": ""})
    loaded = load_tasks(path, TaskDefaults(repositories=str(tmp_path)))
    assert [str(problem.line) for problem in loaded.problems] == ["1", "2"]
    assert "clone it there as acme__tool" in loaded.problems[0].message


def make_exercise(folder: Path, **files: list[str]) -> None:
    for name in (".docs", ".meta"):
        (folder / name).mkdir(parents=True)
    (folder / ".docs/instructions.md").write_text("# Instructions\n\nScore a game.\n")
    (folder / ".meta/config.json").write_text(json.dumps({"files": files}))


def test_a_folder_of_exercises_is_a_task_each_with_the_tests_of_its_language(tmp_path):
    practice = tmp_path / "python/exercises/practice"
    make_exercise(practice / "bowling", solution=["bowling.py"], test=["bowling_test.py"])
    make_exercise(tmp_path / "go/exercises/practice/bowling", solution=["b.go"], test=["b_test.go"])
    make_exercise(practice / "broken", solution=[], test=[])
    loaded = load_tasks(tmp_path)
    assert [task.id for task in loaded.tasks] == ["go-bowling", "python-bowling"]
    task = loaded.tasks[1]
    assert task.check == "python3 -m pytest -q bowling_test.py"
    assert task.folder == str(practice / "bowling")
    assert "Score a game." in task.prompt
    assert task.labels == {"language": "python"}
    assert len(loaded.problems) == 1


def test_a_folder_with_task_files_is_a_task_each(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.json").write_text(json.dumps({"prompt": f"do {name}"}))
    write_lines(tmp_path / "more.jsonl", {"prompt": "three", "id": "three"})
    loaded = load_tasks(tmp_path)
    assert [task.id for task in loaded.tasks] == ["three", "one", "two"]
    assert loaded.tasks[1].folder == str(tmp_path / "one")


@pytest.mark.parametrize(
    ("name", "message"),
    [("missing.jsonl", "does not exist"), ("tasks.parquet", "use one of .jsonl"), ("", "no tasks")],
)
def test_what_is_no_file_of_tasks_says_what_to_give(tmp_path, name, message):
    if "." in name and "missing" not in name:
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=message):
        load_tasks(tmp_path / name)


def test_every_default_reaches_the_task(tmp_path):
    given: dict[str, Any] = {
        "model": "sonnet", "max_cost": 2.0, "max_turns": 7, "permission_mode": "plan",
        "check": "make test", "timeout": 60.0, "container": "python:3.12", "batch": True,
    }  # fmt: skip
    assert set(given) == set(DEFAULT_FIELDS)
    path = write_lines(tmp_path / "t.jsonl", {"prompt": "x"})
    (task,) = load_tasks(path, TaskDefaults(**given)).tasks
    assert {name: getattr(task, name) for name in DEFAULT_FIELDS} == given
