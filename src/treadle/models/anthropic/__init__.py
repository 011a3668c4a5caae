"""Anthropic Messages: the model, its encoding and its decoding."""

from treadle.models.anthropic.model import Anthropic

__all__ = ["Anthropic"]
