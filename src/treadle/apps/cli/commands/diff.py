"""`treadle diff`: where two sessions part. The work is in replay.py."""

from __future__ import annotations

from treadle.apps.cli.commands.replay import run_diff as run

__all__ = ["run"]
