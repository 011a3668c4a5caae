"""A model on this machine: no key, no network, no cost.

Embedded                                   the model, behind the Model contract
available() · default() · fetch()          which weights are here, and how to get better ones
"""

from __future__ import annotations

from treadle.models.embedded.model import Embedded
from treadle.models.embedded.weights import KNOWN, Weights, available, default, known, located

__all__ = ["KNOWN", "Embedded", "Weights", "available", "default", "known", "located"]
