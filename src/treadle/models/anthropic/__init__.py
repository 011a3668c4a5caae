"""Anthropic Messages: the model, how it writes requests down, how it reads answers."""

from treadle.models.anthropic.model import Anthropic

__all__ = ["Anthropic"]
