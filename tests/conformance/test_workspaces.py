from __future__ import annotations

from pathlib import Path

import pytest

from tests.workspace.helpers import BOTH
from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.core.contracts.workspace import FileContent, Workspace
from treadle.testing.conformance.workspace import check_workspace
from treadle.workspace.local import LocalWorkspace, WorkspaceOptions


@pytest.mark.parametrize("sandbox", BOTH)
@pytest.mark.parametrize("is_late", [False, True])
async def test_the_local_workspace_keeps_its_promises(
    own_place: Path, is_late: bool, sandbox: bool, no_leaks: object
) -> None:
    folders = (own_place / f"ws{n}" for n in range(100))
    options = WorkspaceOptions(sandbox="auto" if sandbox else "off")

    async def make() -> Workspace:
        folder = next(folders)
        folder.mkdir()
        if is_late:
            return LazyWorkspace(folder, lambda: options)
        return await LocalWorkspace.open(folder, options)

    await check_workspace(make)


async def test_a_broken_promise_of_a_workspace_is_named(own_place: Path) -> None:
    class Careless(LocalWorkspace):
        async def write(
            self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
        ) -> FileContent:
            return await super().write(path, data, mode=0o600)

    async def make() -> LocalWorkspace:
        return await Careless.open(own_place, WorkspaceOptions(sandbox="off"))

    with pytest.raises(AssertionError, match="mode"):
        await check_workspace(make)
