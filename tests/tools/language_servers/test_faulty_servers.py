"""Language servers that are silent, crash, flood or send nonsense: named, ended, not waited for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.patience import pass_time, until
from tests.workspace.helpers import opened
from treadle.tools.language_servers import edit_diagnostics, languages
from treadle.tools.language_servers.edit_diagnostics import EditDiagnostics
from treadle.tools.language_servers.languages import Language
from treadle.tools.language_servers.servers import LanguageServers

SERVER = Path(__file__).with_name("scripted_server.py")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edit_diagnostics, "WAIT_SECONDS", 120.0)


class Project:
    """A folder whose `.xyz` files have the scripted server."""

    def __init__(self, folder: Path, diagnostics: EditDiagnostics, told: list[str]) -> None:
        self.folder, self.diagnostics, self.told = folder, diagnostics, told

    async def edit(self, text: str, name: str = "a.xyz") -> str:
        """Write a file as a tool would; what the model reads of it."""
        path = self.folder / name
        await self.diagnostics.before_edit("s", [path])
        path.write_text(text)
        return await self.diagnostics.after_edit("s", [path])

    async def settle(self) -> None:
        """Wait until nothing is checked any more."""
        await until(lambda: not self.diagnostics._tasks, "the end of the checks")

    @property
    def starts(self) -> int:
        file = self.folder / "starts.txt"
        return file.read_text().count("started") if file.exists() else 0


@contextlib.asynccontextmanager
async def project(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *faults: str
) -> AsyncIterator[Project]:
    commands = tuple((sys.executable, str(SERVER), fault) for fault in faults)
    language = Language("Xyz", {".xyz": "xyz"}, (), commands)
    monkeypatch.setattr(languages, "LANGUAGES", (language,))
    told: list[str] = []
    async with opened(folder) as workspace:
        servers = LanguageServers(workspace, workspace.spawn, is_trusted=True, notify=told.append)
        diagnostics = EditDiagnostics(servers, lambda session: [])
        try:
            yield Project(folder, diagnostics, told)
        finally:
            await diagnostics.aclose()


async def test_only_new_problems_are_told_and_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.xyz").write_text("good\nbad before\n")
    async with project(tmp_path, monkeypatch, "") as one:
        assert await one.edit("meh\nbad before\n") == "", "a cold server is not waited for"
        await one.settle()
        report = await one.edit("first\nmeh\nbad before\nbad new\npoor new\n")
        assert report.splitlines()[1:] == [
            "a.xyz:4:1 error: a bad line",
            "a.xyz:5:1 warning: a poor line",
        ]
        assert await one.edit("bad before\nbad new\n") == ""
        many = "".join(f"bad {n}\n" for n in range(30))
        lines = (await one.edit(many)).splitlines()
        assert "30 new problems" in lines[0]
        assert (len(lines), lines[-1]) == (12, "... 20 more")
        assert one.told == []


async def test_what_a_cold_server_finds_is_told_at_the_end_of_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.xyz").write_text("bad before\n")
    async with project(tmp_path, monkeypatch, "") as one:
        assert await one.edit("bad before\nbad new\npoor\n") == ""
        await one.settle()
        late = await one.diagnostics.at_turn_end("s")
        assert "a.xyz:2:1 error: a bad line" in late
        assert await one.diagnostics.at_turn_end("s") == ""
        assert await one.edit("poor\npoor again\n") != ""
        assert await one.diagnostics.at_turn_end("other session") == ""


async def test_a_file_that_the_user_changed_meanwhile_is_not_the_edits_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with project(tmp_path, monkeypatch, "") as one:
        await one.edit("good\n")
        await one.settle()
        (tmp_path / "a.xyz").write_text("good\nbad by the user\n")
        assert await one.edit("better\nbad by the user\n") == ""


async def test_a_server_that_crashes_is_started_again_at_most_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with project(tmp_path, monkeypatch, "crash") as one:
        await one.edit("good\n")
        await one.settle()
        for n in range(5):
            await one.edit(f"crash {n}\n")
            await one.settle()
        assert one.starts == 3
        assert "it ended with exit code 3: a bug in the server" in one.told[-1]
        assert "is not used" in one.told[-1]


async def test_after_a_crash_the_next_edit_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with project(tmp_path, monkeypatch, "crash") as one:
        for text in ("good\n", "crash\n", "good\n"):
            await one.edit(text)
            await one.settle()
        assert "a bad line" in await one.edit("good\nbad\n")
        assert one.starts == 2


async def test_a_server_that_does_not_start_is_replaced_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with project(tmp_path, monkeypatch, "no-start", "") as one:
        await one.edit("good\n")
        await one.settle()
        assert "a bad line" in await one.edit("good\nbad\n")


async def test_a_program_that_cannot_run_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with project(tmp_path, monkeypatch, "no-start") as one:
        for n in range(3):
            assert await one.edit(f"bad {n}\n") == ""
            await one.settle()
        assert one.starts == 1
        assert len(one.told) == 1
        assert "no such option" in one.told[0]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("flood", "it sends too much that was not asked for"),
        ("long", "it sent a message of 1,000,000,000 bytes, which is too long"),
        ("malformed", "it sent what is no JSON: b'{no json'"),
        ("garbage", "it sent what is no message: b'Warning: this"),
        ("wrong-shape", "it sent a malformed answer"),
    ],
)
async def test_nonsense_is_named_and_harms_no_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str
) -> None:
    (tmp_path / "a.xyz").write_text("bad\n")
    async with project(tmp_path, monkeypatch, fault) as one:
        assert await one.edit("bad\nworse\n") == ""
        await one.settle()
        assert any(reason in text for text in one.told), one.told


async def test_a_silent_server_is_given_up_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.xyz").write_text("bad\n")
    async with project(tmp_path, monkeypatch, "silent") as one:
        assert await one.edit("bad\nbad\n") == ""
        files = one.diagnostics._servers.find_server(tmp_path / "a.xyz")
        assert files is not None
        await until(lambda: files._files, "the server to be shown the file")
        pass_time(31.0)
        await until(lambda: one.told, "its reason")
        assert "it reported nothing in 30 s" in one.told[0]


async def test_a_session_that_ends_leaves_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with project(tmp_path, monkeypatch, "") as one:
        await one.edit("good\n")
        await one.settle()
        server = one.diagnostics._servers.find_server(tmp_path / "a.xyz")
        assert server is not None
        connection = server._connection
        assert connection is not None
        await one.diagnostics.aclose()
        assert await connection._process.exits_within(0.0)
        await one.edit("good again\n")
        await one.settle()
        assert one.starts == 2, "the next edit starts it again"
