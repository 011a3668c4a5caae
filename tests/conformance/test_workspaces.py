from __future__ import annotations

from pathlib import Path

import pytest

from tests.workspace.helpers import BOTH
from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.core.contracts.workspace import Workspace
from treadle.testing import check_workspace
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions


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
