import json
from pathlib import Path

import pytest

from tests.workspace.helpers import needs_bubblewrap
from treadle.apps.cli.commands.permissions import run


@pytest.fixture
def place(tmp_path, monkeypatch):
    home, folder = tmp_path / "home", tmp_path / "work"
    (home / ".treadle").mkdir(parents=True)
    (folder / ".treadle").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    return home, folder


def write(folder: Path, **lists: list[str]) -> Path:
    file = folder / ".treadle" / "settings.json"
    file.write_text(json.dumps({"permissions": lists}))
    return file


def test_rules_are_listed_with_their_origin(place, capsys):
    home, folder = place
    file = write(home, allow=["Bash(npm test:*)"])
    write(folder, deny=["Read(.env)"], allow=["Bash"])
    assert run(["--folder", str(folder), "list"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["deny", "Read(.env)"],
        ["allow", "Bash(npm"],
    ]
    assert f"everywhere: {file}:1" in out
    rule = f"1 rule in {folder / '.treadle'} that allows commands is not active"
    assert f"{rule}. To activate it: treadle trust" in err


def test_a_verdict_is_explained_part_by_part(place, capsys):
    _, folder = place
    assert run(["--folder", str(folder), "explain", "git status; timeout 5 rm x"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "ask: timeout 5 rm x: rm x: no rule allows it"
    assert out[1] == "  + git status   allow: only reads"
    assert out[3] == "    ? rm x   ask: no rule allows it"
    assert out[4] == '"always allow" would save: Bash(rm x)'


def test_a_command_that_writes_its_output_is_not_said_to_only_read(place, capsys):
    _, folder = place
    Path(folder, "x").write_text("")
    assert run(["--folder", str(folder), "explain", "--allow", "Edit(**)", "echo a > x"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "allow: echo a > x: writes only its output"


def test_escapes_are_shown_as_text(place, capsys):
    _, folder = place
    run(["--folder", str(folder), "explain", "echo \u202ex"])
    assert "\u202e" not in capsys.readouterr().out


def test_an_explanation_can_be_read_by_programs(place, capsys):
    _, folder = place
    line = ["--folder", str(folder), "explain", "--json", "--allow", "Bash(rm:*)", "rm x"]
    assert run(line) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verdict"], answer["parts"][0]["rule"]) == ("allow", "Bash(rm:*)")


def test_cases_are_judged_one_line_each_and_a_difference_is_the_exit_code(place, capsys, tmp_path):
    file = tmp_path / "cases.jsonl"
    case = {"id": "A", "tool": "bash", "input": {"command": "ls"}, "expect": "allow"}
    file.write_text(json.dumps(case) + "\n")
    assert run(["test", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "allow"
    file.write_text(json.dumps({**case, "expect": "deny"}) + "\n")
    assert run(["test", str(file)]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "id": "A",
        "verdict": "allow",
        "reason": "ls: only reads",
        "expect": "deny",
    }


def test_fault_90_a_wrong_rules_file_is_said_with_file_and_line(place, capsys):
    home, folder = place
    file = write(home, deny=["Bash(a; b)"])
    assert run(["--folder", str(folder), "explain", "ls"]) == 2
    assert f"{file}:1:" in capsys.readouterr().err


def explain(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["--folder", str(folder), "explain", "--json", *arguments]) == 0
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


@needs_bubblewrap
def test_a_verdict_is_that_of_a_run_here_unless_another_is_asked_for(place, capsys):
    _, folder = place
    (folder / ".env").write_text("KEY=1")
    line = ["grep -r TODO .", "--deny", "Read(.env)"]
    answer = explain(folder, capsys, *line)
    assert (answer["verdict"], answer["sandboxed"], answer["mode"]) == ("allow", True, "ask")
    answer = explain(folder, capsys, *line, "--sandbox", "off")
    assert (answer["verdict"], answer["sandboxed"]) == ("ask", False)


def test_a_verdict_is_explained_as_without_a_sandbox_where_there_is_none(
    place, capsys, monkeypatch
):
    monkeypatch.setenv("PATH", "/nowhere")
    _, folder = place
    (folder / ".env").write_text("KEY=1")
    line = ["grep -r TODO .", "--deny", "Read(.env)"]
    assert explain(folder, capsys, *line)["verdict"] == "ask"
    assert explain(folder, capsys, *line, "--sandbox", "required")["verdict"] == "allow"
    assert run(["--folder", str(folder), "explain", "ls"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "(mode ask, without a sandbox)"


def test_a_verdict_is_that_of_the_mode_in_the_settings(place, capsys):
    home, folder = place
    (home / ".treadle/config.toml").write_text('permission_mode = "plan"\n')
    assert explain(folder, capsys, "rm x", "--sandbox", "off")["verdict"] == "deny"
    line = ["make x", "--permission-mode", "auto", "--sandbox"]
    assert explain(folder, capsys, *line, "required")["verdict"] == "allow"
    assert explain(folder, capsys, *line, "off")["verdict"] == "ask"


def test_a_removal_is_explained_with_the_checkpoints_that_a_run_here_takes(place, capsys):
    home, folder = place
    line = ["rm x", "--permission-mode", "accept-edits", "--sandbox", "off"]
    assert explain(folder, capsys, *line)["verdict"] == "allow"
    assert explain(home, capsys, *line)["verdict"] == "ask"  # a home gets no checkpoints


def test_cases_are_evaluated_with_or_without_the_sandbox(place, capsys, tmp_path):
    case = {
        "id": "A", "tool": "bash", "input": {"command": "grep -r x ."},
        "rules": {"deny": ["Read(.env)"]}, "setup": {"files": {".env": "x"}},
    }  # fmt: skip
    fixed = {**case, "setup": {"files": {".env": "x"}, "sandboxed": False}}
    file = tmp_path / "cases.jsonl"
    file.write_text(json.dumps(case) + "\n" + json.dumps(fixed) + "\n")
    for sandbox, expected in (("required", ["allow", "ask"]), ("off", ["ask", "ask"])):
        assert run(["test", str(file), "--sandbox", sandbox]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [json.loads(line)["verdict"] for line in lines] == expected
