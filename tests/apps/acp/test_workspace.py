"""Files and terminals of the editor: behind the contract of a workspace, within its limits."""

# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from tests.apps.acp.editor import Editor, call, connect
from treadle.apps.acp.workspace import EditorWorkspace
from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.core.errors import WorkspaceError
from treadle.testing.conformance.workspace import check_workspace
from treadle.testing.provider import FakeReply, ProviderServer
from treadle.workspace.options import WorkspaceOptions

DONE = FakeReply("It is done.")


class SavingEditor:
    """Has no unsaved texts unless a test adds them; writes and saves what it is given."""

    can_read = can_write = True

    def __init__(self) -> None:
        self.buffers: dict[Path, str] = {}
        self.requests: list[str] = []
        self.written: list[Path] = []
        self.refuses = False
        self.forgets = False

    async def read(self, path: Path) -> str | None:
        self.requests.append("read")
        if path in self.buffers:
            return self.buffers[path]
        try:
            return path.read_text(errors="replace")
        except OSError:
            return None

    async def write(self, path: Path, text: str) -> bool:
        self.requests.append("write")
        if self.refuses:
            return False
        self.written.append(path)
        if self.forgets:
            return True
        path.write_text(text, newline="")
        self.buffers.pop(path, None)
        return True


def make_workspace(
    files: SavingEditor, folder: Path, options: WorkspaceOptions | None = None
) -> EditorWorkspace:
    local = LazyWorkspace(folder, lambda: options or WorkspaceOptions(sandbox="off"))
    return EditorWorkspace(local, files, [folder])


async def test_it_keeps_the_promises_of_a_workspace():
    folders: list[tempfile.TemporaryDirectory[str]] = []

    def make() -> EditorWorkspace:
        folders.append(tempfile.TemporaryDirectory())
        return make_workspace(SavingEditor(), Path(folders[-1].name))

    await check_workspace(make)
    for folder in folders:
        folder.cleanup()


async def test_unsaved_text_is_read_and_the_disk_is_used_for_the_rest():
    files, folder = SavingEditor(), Path.cwd()
    (folder / "a.txt").write_text("saved")
    (folder / "b.bin").write_bytes(b"\0\xff")
    (folder / "c.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    files.buffers = {folder / "a.txt": "not saved", folder / "b.bin": "?", folder / "n.txt": "new"}
    files.buffers[folder / "c.txt"] = "one\ntwo\n"
    workspace = make_workspace(files, folder)
    content = await workspace.read("a.txt")
    assert content.data == b"not saved"
    assert (await workspace.read("a.txt", limit=3)).data == b"not"
    assert (await workspace.read("b.bin")).data == b"\0\xff"
    assert (await workspace.read("c.txt")).data == b"\xef\xbb\xbfone\r\ntwo\r\n"
    assert (await workspace.read("n.txt")).data == b"new"
    files.buffers[folder / "c.txt"] = "one\n2\n"
    assert (await workspace.read("c.txt")).data == b"\xef\xbb\xbfone\r\n2\r\n"
    written = await workspace.write("a.txt", b"both", expected=content.digest)
    assert (folder / "a.txt").read_text() == "both"
    assert written.digest == (await workspace.read("a.txt")).digest
    with pytest.raises(WorkspaceError, match="changed since it was read"):
        await workspace.write("a.txt", b"x", expected=content.digest)
    await workspace.aclose()


async def test_protected_binary_and_refused_files_are_written_without_the_editor():
    files, folder = SavingEditor(), Path.cwd()
    workspace = make_workspace(files, folder)
    await workspace.write(".vscode/tasks.json", b"{}", expected="")
    await workspace.write("d.bin", b"\0", expected="")
    assert files.written == []
    files.refuses = True
    await workspace.write("e.txt", b"text", expected="")
    assert (folder / "e.txt").read_bytes() == b"text"
    await workspace.aclose()


async def test_a_write_that_the_editor_only_claims_is_an_error():
    files, folder = SavingEditor(), Path.cwd()
    (folder / "a.txt").write_text("old")
    workspace = make_workspace(files, folder)
    files.forgets = True
    for name in ("a.txt", "new.txt"):
        with pytest.raises(WorkspaceError, match="did not write"):
            await workspace.write(name, b"text")
    await workspace.aclose()


async def test_no_path_outside_of_the_folders_reaches_the_editor():
    files, folder = SavingEditor(), Path.cwd()
    (folder / "out").symlink_to(folder.parent)
    (folder.parent / "secret.txt").write_text("secret")
    workspace = make_workspace(files, folder)
    for path in ("../secret.txt", "out/secret.txt", str(folder.parent / "secret.txt")):
        with pytest.raises(WorkspaceError):
            await workspace.read(path)
        with pytest.raises(WorkspaceError):
            await workspace.write(path, b"x")
    assert files.written == []
    await workspace.aclose()


async def test_while_a_command_runs_files_are_written_to_disk():
    """The command could swap a folder for a symlink, which the editor would follow."""
    files, folder = SavingEditor(), Path.cwd()
    workspace = make_workspace(files, folder)
    running = await workspace.start("sleep 100")
    await workspace.write("a.txt", b"one")
    assert files.written == []
    files.buffers[folder / "a.txt"] = "not saved"
    with pytest.raises(WorkspaceError, match="unsaved changes"):
        await workspace.write("a.txt", b"two")
    await running.kill()
    await workspace.write("a.txt", b"two")
    assert files.written == [folder / "a.txt"]
    await workspace.aclose()


async def test_an_edit_starts_from_the_unsaved_text_and_goes_through_the_editor():
    file = Path("a.txt").resolve()
    file.write_text("one\n")
    editor = Editor()
    editor.buffers[str(file)] = "one\nnot saved\n"
    replies = [
        call("read", file_path="a.txt"),
        call("edit", file_path="a.txt", old_string="not saved", new_string="saved"),
        DONE,
    ]
    async with ProviderServer(replies) as server, connect(server, editor=editor, files=True) as on:
        await on.prompt(await on.new(), "Edit")
        assert b"not saved" in server.requests[1].body
        assert all(b"Changed on disk" not in request.body for request in server.requests)
        assert editor.written == {str(file): "one\nsaved\n"}
        assert file.read_text() == "one\nsaved\n"
        assert server.violations == []


async def test_a_write_costs_at_most_two_round_trips():
    files, folder = SavingEditor(), Path.cwd()
    workspace = make_workspace(files, folder)
    created = await workspace.write("a.txt", b"one", expected="")
    assert files.requests == ["read", "write"]
    files.requests.clear()
    await workspace.write("a.txt", b"two", expected=created.digest)
    assert files.requests == ["read", "write"]
    await workspace.aclose()


async def test_a_command_runs_in_a_terminal_of_the_editor_only_without_a_sandbox():
    command = "mkdir sub; cd sub; echo key=$ANTHROPIC_API_KEY,$EDITOR_KEY; exit 3"
    replies = [call("bash", command=command), call("bash", command="pwd"), DONE]
    editor = Editor()
    async with ProviderServer(replies) as server:
        arguments = ("--sandbox", "off", "--permission-mode", "ask")
        async with connect(server, *arguments, editor=editor, terminal=True) as on:
            await on.prompt(await on.new(), "Run")
            assert len(editor.terminals) == 2
            assert b"key=,of the editor" in server.requests[1].body
            assert b"exit code 3" in server.requests[1].body
            assert f"{Path.cwd()}/sub".encode() in server.requests[2].body
            shown = editor.get_call("pwd")["content"][0]
            assert (shown.type, shown.terminal_id) == ("terminal", "terminal-2")


async def test_a_cancel_kills_the_command_in_the_terminal():
    editor = Editor()
    async with ProviderServer([call("bash", command="sleep 100"), DONE]) as server:
        async with connect(server, "--sandbox", "off", editor=editor, terminal=True) as on:
            session = await on.new()
            running = asyncio.create_task(on.prompt(session, "Run"))
            await editor.until(lambda: editor.terminals)
            await on.agent.cancel(session_id=session)
            assert (await running).stop_reason == "cancelled"
            assert await editor.terminals["terminal-1"].wait() != 0


async def test_the_sandbox_stays_where_there_is_one():
    editor = Editor()
    async with ProviderServer([call("bash", command="echo inside"), DONE]) as server:
        async with connect(server, editor=editor, terminal=True) as on:
            await on.prompt(await on.new(), "Run")
            if b"without a sandbox" in on.editor.text.encode():
                pytest.skip("no sandbox can be built here")
            assert editor.terminals == {}
            assert b"inside" in server.requests[1].body
