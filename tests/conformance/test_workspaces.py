from __future__ import annotations

from pathlib import Path

import pytest

from tests.workspace.helpers import BOTH
from treadle.apps.wiring.late import LateWorkspace
from treadle.core.contracts.workspace import FileContent
from treadle.testing.conformance.workspace import check_workspace
from treadle.workspace.local import LocalWorkspace, Options


@pytest.mark.parametrize("sandbox", BOTH)
async def test_the_local_workspace_keeps_its_promises(
    own_place: Path, sandbox: bool, no_leaks: object
) -> None:
    folders = (own_place / f"ws{n}" for n in range(100))

    async def make() -> LocalWorkspace:
        folder = next(folders)
        folder.mkdir()
        return await LocalWorkspace.open(folder, Options(sandbox="auto" if sandbox else "off"))

    await check_workspace(make)


@pytest.mark.parametrize("sandbox", BOTH)
async def test_a_workspace_that_is_made_late_keeps_them_too(
    own_place: Path, sandbox: bool, no_leaks: object
) -> None:
    folders = (own_place / f"ws{n}" for n in range(100))

    async def make() -> LateWorkspace:
        folder = next(folders)
        folder.mkdir()
        return LateWorkspace(folder, lambda: Options(sandbox="auto" if sandbox else "off"))

    await check_workspace(make)


async def test_a_broken_promise_of_a_workspace_is_named(own_place: Path) -> None:
    class Careless(LocalWorkspace):
        async def write(
            self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
        ) -> FileContent:
            return await super().write(path, data, mode=0o600)

    async def make() -> LocalWorkspace:
        return await Careless.open(own_place, Options(sandbox="off"))

    with pytest.raises(AssertionError, match="mode"):
        await check_workspace(make)
