"""Shared by the tests of child agents: scripted models and repositories."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from treadle.core.contracts.model import ModelRequest
from treadle.core.transcript import ToolResultItem, Transcript, UserItem
from treadle.models import Scripted

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
FREE: dict[str, Any] = {"permission_mode": "bypass", "sandbox": "off"}


def task(prompt: str, **more: object) -> tuple[str, dict[str, object]]:
    return "task", {"description": "a piece of work", "prompt": prompt, **more}


def bash(command: str) -> tuple[str, dict[str, object]]:
    return "bash", {"command": command}


def answers(transcript: Transcript) -> list[str]:
    return [item.text for item in transcript if isinstance(item, ToolResultItem)]


def messages(request: ModelRequest) -> list[str]:
    return [item.text for item in request.transcript if isinstance(item, UserItem)]


def scripted(**replies: Any) -> Scripted:
    """A model that answers by the last message of the user: a reply, or replies in order."""
    left = {
        key: list(value) if isinstance(value, list) else [value] for key, value in replies.items()
    }

    def answer(request: ModelRequest) -> Any:
        return left[messages(request)[-1].split()[0]].pop(0)

    return Scripted(answer)


def request_of(model: Scripted, prompt: str) -> ModelRequest:
    return next(one for one in model.requests if messages(one)[-1] == prompt)


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()
