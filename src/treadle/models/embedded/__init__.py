"""A model on this machine: no key, no network, no cost.

    Embedded                                       the model, behind the Model contract
    Assisted                                       the aids of the engine around it: aids/
    list_available_weights · find_default_weights  the weights on this machine
    download_weights                               downloads better ones

The names load at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.lib.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.models.embedded.aids.assist import Assisted
    from treadle.models.embedded.download import DownloadProgress, download_weights
    from treadle.models.embedded.model import Embedded
    from treadle.models.embedded.weights import (
        ALL_WEIGHTS,
        Weights,
        find_default_weights,
        find_weights,
        list_available_weights,
        locate_weights,
    )


__all__ = [
    "ALL_WEIGHTS",
    "Assisted",
    "Embedded",
    "DownloadProgress",
    "Weights",
    "list_available_weights",
    "find_default_weights",
    "download_weights",
    "find_weights",
    "locate_weights",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ALL_WEIGHTS": "weights",
        "Assisted": "aids.assist",
        "DownloadProgress": "download",
        "Embedded": "model",
        "Weights": "weights",
        "download_weights": "download",
        "find_default_weights": "weights",
        "find_weights": "weights",
        "list_available_weights": "weights",
        "locate_weights": "weights",
    },
)
