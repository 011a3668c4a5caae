"""The home of a fault script that is started by hand: its own, with an empty current folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_home(prefix: str) -> Iterator[Path]:
    """Nothing of the user is read or changed; the folder that is yielded is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"{prefix}-") as place:
        os.environ |= {
            "HOME": place,
            "XDG_DATA_HOME": f"{place}/data",
            "XDG_STATE_HOME": f"{place}/state",
        }
        Path(place, "folder").mkdir()
        os.chdir(Path(place, "folder"))
        try:
            yield Path(place)
        finally:
            os.chdir("/")
