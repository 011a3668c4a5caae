"""Files that the configuration of git makes it run, or reads as more configuration."""

from pathlib import Path

import pytest

from treadle.lib.files.file_view import LOCAL_FILES
from treadle.lib.git.configured_files import list_configured_files
from treadle.permissions.rule_cases import CaseSetup, RuleCase, run_cases
from treadle.tools.builtin import describe_access

SETTINGS = {
    "[core] sshCommand = ./tools/a": "tools/a",
    "[core] sshCommand = tools/a -x": "tools/a",
    "[core] sshCommand = ./not/yet": "not/yet",
    "[alias] x = !cd tools && ./a": "tools/a",
    "[alias] x = !sh -c 'tools/a'": "tools/a",
    "[alias] x = !${PWD}/tools/a": "tools/a",
    "[alias] x = !$(git rev-parse --show-toplevel)/tools/a": "tools/a",
    '[alias] x = !\\"tools/a b\\"': "tools/a b",
    '[filter "f"] clean = python3 tools/a': "tools/a",
    "[include] path = ../more": "hooks/two",
    "[core] hooksPath = my hooks": "my hooks",
    "[core] excludesFile = tools/a": "",
    '[branch "x"] merge = refs/heads/x': "",
    "[alias] st = status": "",
}


def make(folder: Path, config: str) -> None:
    for name in ("tools/a", "tools/a b", "x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text(config)
    (folder / "more").write_text("[core]\nhooksPath = hooks/two")


@pytest.mark.parametrize("setting", SETTINGS)
def test_files_of_settings_are_found_in_any_spelling(setting: str, tmp_path: Path):
    section, _, line = setting.partition("] ")
    make(tmp_path, f"{section}]\n{line}\n")
    found = list_configured_files(LOCAL_FILES, str(tmp_path), "/nowhere")
    wanted = SETTINGS[setting]
    assert f"{tmp_path}/{wanted}" in found if wanted else found == []


def test_settings_of_the_user_count_in_each_repository(tmp_path: Path):
    make(tmp_path / "ws", "")
    config = "[core]\nhooksPath = hooks\n[alias]\na = !tools/a\nb = !x\n"
    (tmp_path / ".gitconfig").write_text(config)
    found = list_configured_files(LOCAL_FILES, f"{tmp_path}/ws", str(tmp_path))
    assert found == [f"{tmp_path}/ws/hooks", f"{tmp_path}/ws/tools/a"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("echo x > tools/a", "ask"),
        ("echo x > hooks/pre-commit", "ask"),
        ("cp x tools/a", "ask"),
        ("mv tools t", "ask"),
        ("rm -r tools", "ask"),
        ("echo x > tools/other", "allow"),
    ],
)
def test_writing_them_is_asked_about(line: str, expected: str):
    config = "[core]\n\tsshCommand = ./tools/a\n\thooksPath = hooks\n"
    setup = CaseSetup({".git/config": config, "tools/a": "", "x": ""}, sandboxed=False)
    case = RuleCase("1", "bash", {"command": line}, setup=setup)
    [result] = run_cases([case], describe_access, "accept-edits")
    assert result.verdict == expected, result.reason
