"""Programs of the folder in PATH are not those of the system."""

import os
from pathlib import Path

import pytest

from treadle.core.contracts.tool import Access
from treadle.permissions.findings import PolicyCall
from treadle.permissions.policy import RulePolicy, build_policy_context


def judge(line: str) -> str:
    folder = str(Path.cwd())
    call = PolicyCall("bash", Access(command=line, cwd=folder))
    return RulePolicy(build_policy_context(folder)).evaluate(call).outcome


@pytest.mark.parametrize("place", [".venv/bin", ".", ""])
def test_a_program_of_the_folder_in_path_is_asked_about(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(".venv/bin").mkdir(parents=True)
    Path("a.txt").write_text("x")
    folder = place if place in (".", "") else str(Path.cwd() / place)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    assert (judge("git status"), judge("cat a.txt"), judge("python --version")) == ("allow",) * 3
    for name in ("git", "cat", "python"):
        Path(place, name).write_text("#!/bin/sh")
    assert (judge("git status"), judge("cat a.txt"), judge("python --version")) == (
        "ask",
        "ask",
        "allow",
    )
    monkeypatch.setenv("HOME", str(Path.cwd()))  # who works in the home has programs there
    assert judge("cat a.txt") == ("allow" if place == ".venv/bin" else "ask")


@pytest.mark.parametrize("line", ["node --version", "jq . a.json", "cd sub && jq . ../a.json"])
def test_a_file_that_chooses_the_programs_of_shims_is_asked_about(
    line: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims = tmp_path_factory.mktemp("asdf") / "shims"
    shims.mkdir()
    for name in ("node", "jq"):
        (shims / name).write_text("#!/bin/sh")
    monkeypatch.setenv("PATH", f"{shims}{os.pathsep}{os.environ['PATH']}")
    Path("sub").mkdir()
    Path("a.json").write_text("{}")
    Path(".tool-versions").write_text("nodejs 20.1.0\njq 1.7\n")
    assert judge(line) == "allow"
    Path(".tool-versions").write_text("nodejs path:./evil\njq path:./evil\n")
    assert (judge(line), judge("cat a.json")) == ("ask", "allow")
