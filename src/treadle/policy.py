"""The former place of these names: they are in `treadle.permissions` and `treadle.hooks`."""

from __future__ import annotations

from treadle.hooks import hook
from treadle.permissions import AllowAll, DefaultPolicy, RulePolicy

__all__ = ["AllowAll", "DefaultPolicy", "RulePolicy", "hook"]
