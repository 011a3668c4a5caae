"""Bedrock's Converse interface: the model, its encoding and its decoding."""

from treadle.models.bedrock_converse.model import BedrockConverse

__all__ = ["BedrockConverse"]
