"""Gemini's own interface, generateContent: the model, its encoding and its decoding."""

from treadle.models.gemini.model import Gemini

__all__ = ["Gemini"]
