"""Checkers that run after an edit, through a whole agent and a real workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.workspace.helpers import opened
from treadle import Agent
from treadle.core.contracts.policy import AllowAll
from treadle.core.errors import ConfigError
from treadle.core.transcript.items import ToolResultItem
from treadle.hooks import checkers as module
from treadle.hooks.checkers import Checkers, read_checkers
from treadle.models import Say, Scripted
from treadle.tools.builtin import builtin_tools


async def write_files(
    folder: Path, checkers: Mapping[str, Sequence[str]], *names: str, content: str = "x = (\n"
) -> list[str]:
    calls = [("write", {"file_path": name, "content": content}) for name in names]
    async with opened(folder) as workspace:
        agent = Agent(
            Scripted([*(Say(calls=[call]) for call in calls), "done"]),
            [builtin_tools(workspace)],
            workspace=workspace,
            policy=AllowAll(),
            hooks=[Checkers(workspace, checkers)],
        )
        result = await agent.run("go")
    return [item.text for item in result.transcript if isinstance(item, ToolResultItem)]


COMPILE = "python3 -m py_compile {files}"


async def test_what_a_checker_reports_is_added_to_the_result_of_the_edit(tmp_path: Path) -> None:
    (text,) = await write_files(tmp_path, {"*.py": [COMPILE]}, "my file.py")
    assert f"[{COMPILE} reports, after this change]" in text
    assert "SyntaxError" in text
    assert "my file.py" in text.partition("reports")[2], "the name is quoted for the shell"


async def test_a_checker_that_finds_nothing_or_is_for_other_files_says_nothing(
    tmp_path: Path,
) -> None:
    good = await write_files(tmp_path, {"*.py": [COMPILE]}, "a.py", content="x = 1\n")
    other = await write_files(tmp_path, {"*.ts": ["false"]}, "b.py")
    none = await write_files(tmp_path, {}, "c.py")
    assert not any("reports" in text for text in (*good, *other, *none))


@pytest.mark.parametrize("pattern", ["src/*.py", "src/**/*.py", "**/a.py", "{}/src/*"])
async def test_a_pattern_of_a_path_fits_however_the_model_writes_the_path(
    tmp_path: Path, pattern: str
) -> None:
    checkers = {pattern.format(tmp_path): ["echo seen {files}; false"]}
    texts = await write_files(
        tmp_path, checkers, "src/a.py", "./src/deep/a.py", f"{tmp_path}/src/far/a.py", "b.py"
    )
    assert ["\nseen " in text for text in texts] == [True, True, True, False]


async def test_a_checker_that_is_not_installed_is_named_once(tmp_path: Path) -> None:
    first, second = await write_files(tmp_path, {"*.py": ["no-such-checker"]}, "a.py", "b.py")
    assert "[no-such-checker: not installed; it is not tried again]" in first
    assert "no-such-checker" not in second


async def test_a_checker_is_bounded_in_time_and_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKER_TIMEOUT", 0.2)
    checkers = {"*.py": ["sleep 1000"], "b.py": ["seq 1 5000; false"]}
    slow, _ = await write_files(tmp_path, {"a.py": checkers["*.py"]}, "a.py", "c.txt")
    assert "[sleep 1000 did not end within 0.2 s]" in slow
    monkeypatch.setattr(module, "CHECKER_TIMEOUT", PATIENCE)
    (long,) = await write_files(tmp_path, {"b.py": checkers["b.py"]}, "b.py")
    assert "more characters]" in long
    assert len(long) < 5_000


def test_the_setting_is_a_command_or_several_by_pattern() -> None:
    given = {"*.py": "ruff check {files}", "*.rs": ["cargo check", "cargo clippy"]}
    assert read_checkers(given) == {
        "*.py": ("ruff check {files}",),
        "*.rs": ("cargo check", "cargo clippy"),
    }
    with pytest.raises(ConfigError, match=r"'\*\.py'.*write a command"):
        read_checkers({"*.py": 5})
