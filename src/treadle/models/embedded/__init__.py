"""A model on this machine: no key, no network, no cost.

    Embedded                                   the model, behind the Model contract
    available() · default() · fetch()          which weights are here, and how to get better ones

The names load when they are used: what is here can be asked without loading the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.models.embedded.fetching import DownloadProgress, download_weights
    from treadle.models.embedded.model import Embedded
    from treadle.models.embedded.weights import (
        ALL_WEIGHTS,
        Weights,
        list_available_weights,
        find_default_weights,
        find_weights,
        locate_weights,
    )

_EXPORTS = {
    "Embedded": "model",
    "KNOWN": "weights",
    "Progress": "fetching",
    "Weights": "weights",
    "available": "weights",
    "default": "weights",
    "fetch": "fetching",
    "known": "weights",
    "located": "weights",
}

__all__ = [
    "ALL_WEIGHTS",
    "Embedded",
    "DownloadProgress",
    "Weights",
    "list_available_weights",
    "find_default_weights",
    "download_weights",
    "find_weights",
    "locate_weights",
]


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
