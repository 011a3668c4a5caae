"""A model on this machine: no key, no network, no cost.

    Embedded                                   the model, behind the Model contract
    available() · default() · fetch()          which weights are here, and how to get better ones

The names load when they are used: what is here can be asked without loading the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.models.embedded.fetching import Progress, fetch
    from treadle.models.embedded.model import Embedded
    from treadle.models.embedded.weights import KNOWN, Weights, available, default, known, located

_HOMES = {
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
    "KNOWN",
    "Embedded",
    "Progress",
    "Weights",
    "available",
    "default",
    "fetch",
    "known",
    "located",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
