"""Which programs are found and may run: checkers instead of servers, trust, the setting, tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.patience import until
from tests.workspace.helpers import needs_bubblewrap
from treadle.core.transcript.items import ToolResultItem
from treadle.models import Say, Scripted
from treadle.tools.language_servers import edit_diagnostics

PROJECT_CHECKER = r"""#!/bin/sh
grep -n bad *.go | sed 's/^\([^:]*\):\([0-9]*\):.*/vet: .\/\1:\2:1: a bad line/'
exit 2
"""
RUFF = Path(sys.prefix) / "bin" / "ruff"
CODE_TOOLS = {"find_symbol", "rename_symbol"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edit_diagnostics, "WAIT_SECONDS", 120.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in Python; only its own programs are installed."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "a.py").write_text("import os\n")
    return tmp_path


def install(folder: Path, place: str, text: str) -> None:
    program = folder / place
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(text)
    program.chmod(0o755)


async def run(folder: Path, *writes: tuple[str, str], **options: Any) -> list[str]:
    """What the model reads of these writes."""
    names = sorted({name for name, _ in writes})
    reads = Say(calls=[("read", {"file_path": name}) for name in names])
    steps = [Say(calls=[("write", {"file_path": name, "content": text})]) for name, text in writes]
    model = Scripted([reads, *steps, "done", "done"])
    given = {"permission_mode": "accept-edits", "sandbox": "off", "trust": True, **options}
    async with treadle.coding_agent(folder, model=model, **given) as agent:
        result = await agent.run("go")
    items = [item.text for item in result.transcript if isinstance(item, ToolResultItem)]
    return items[len(names) :]


@pytest.mark.skipif(not RUFF.exists(), reason="ruff is not installed beside this Python")
async def test_ruff_checks_python_where_there_is_no_server(folder: Path) -> None:
    ruff = folder / ".venv" / "bin" / "ruff"
    ruff.parent.mkdir(parents=True)
    ruff.symlink_to(RUFF)
    first, second = await run(folder, ("a.py", "import os\nimport sys\n"), ("a.py", "import sys\n"))
    assert "[ruff: 1 new problem]\na.py:2:8 error: F401" in first
    assert "`sys` imported but unused" in first
    assert "ruff" not in second


async def test_a_checker_of_the_whole_project_tells_what_is_new_in_any_file(folder: Path) -> None:
    install(folder, ".venv/bin/go", PROJECT_CHECKER)
    (folder / "go.mod").touch()
    (folder / "a.go").write_text("good\n")
    (folder / "b.go").write_text("bad\n")
    texts = await run(folder, ("a.go", "fine\n"), ("a.go", "fine\nbad\n"), ("a.go", "ok\nbad\n"))
    assert [text.count("problem") for text in texts] == [0, 1, 0]
    assert "[go: 1 new problem]\na.go:2:1 error: a bad line" in texts[1]


async def test_in_a_folder_that_is_not_trusted_nothing_runs_without_a_sandbox(
    folder: Path,
) -> None:
    install(folder, ".venv/bin/ruff", "#!/bin/sh\ntouch was-run\n")
    install(folder, ".venv/bin/pyright-langserver", "#!/bin/sh\ntouch was-run\n")
    await run(folder, ("a.py", "x = 1\n"), trust=False)
    assert not (folder / "was-run").exists()


@needs_bubblewrap
async def test_in_a_folder_that_is_not_trusted_it_runs_in_the_sandbox(folder: Path) -> None:
    outside = folder.parent / f"{folder.name}-outside"
    outside.mkdir()
    script = f"#!/bin/sh\ntouch was-run; touch {outside}/was-run\n"
    install(folder, ".venv/bin/ruff", script)
    await run(folder, ("a.py", "x = 1\n"), trust=False, sandbox="required")
    assert (folder / "was-run").exists()
    assert not (outside / "was-run").exists()


async def test_the_setting_switches_it_off(folder: Path) -> None:
    install(folder, ".venv/bin/ruff", "#!/bin/sh\ntouch was-run\n")
    await run(folder, ("a.py", "x = 1\n"), settings={"language_servers": False})
    assert not (folder / "was-run").exists()


async def test_the_tools_are_offered_where_a_server_is_installed(folder: Path) -> None:
    def offered(**options: Any) -> set[str]:
        given = {"sandbox": "off", "trust": True, **options}
        agent = treadle.coding_agent(folder, model=Scripted(["hello"]), **given)
        assert agent.parts is not None
        return CODE_TOOLS & {tool.spec.name for tool in agent.parts.builtin.tools()}

    assert offered() == set()
    install(folder, ".venv/bin/pyright-langserver", "#!/bin/sh\n")
    assert offered() == CODE_TOOLS
    assert offered(trust=False) == set(), "it may not run there"
    assert offered(settings={"language_servers": False}) == set()
    (folder / "pyproject.toml").unlink()
    assert offered() == set(), "the project is not in Python"


async def test_a_server_gets_no_secrets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-" + "x" * 40)
    install(folder, ".venv/bin/pyright-langserver", "#!/bin/sh\nenv > seen; mv seen environment\n")
    call = ("write", {"file_path": "b.py", "content": "x = 1\n"})
    model = Scripted([Say(calls=[call]), "done"])
    given: dict[str, Any] = {"permission_mode": "accept-edits", "sandbox": "off", "trust": True}
    async with treadle.coding_agent(folder, model=model, **given) as agent:
        await agent.run("go")
        await until((folder / "environment").exists, "the server")
    assert "sk-ant" not in (folder / "environment").read_text()
