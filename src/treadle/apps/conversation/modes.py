"""What each permission mode means, in words for the user."""

from __future__ import annotations

MODE_DESCRIPTIONS = {
    "plan": "reads and plans, changes nothing",
    "ask": "asks before every action that no rule allows",
    "accept-edits": "changes files of this folder without asking",
    "auto": "changes files of this folder and runs commands in the sandbox without asking",
    "bypass": "does everything without asking, except what a rule denies",
}


def describe_mode(mode: str) -> str:
    return f"{mode}: {MODE_DESCRIPTIONS.get(mode, '')}"
