"""What an agent may do: permission rules, command analysis, modes, trust, hooks, budgets.

Only the user can add permissions; everything else here removes some. Uses core contracts only.
The names below load at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.core.contracts.policy import AllowAll, DefaultPolicy
    from treadle.policy.hooks import hook
    from treadle.policy.policy import RulePolicy

__all__ = [
    "AllowAll",
    "DefaultPolicy",
    "RulePolicy",
    "hook",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "AllowAll": "treadle.core.contracts.policy",
        "DefaultPolicy": "treadle.core.contracts.policy",
        "RulePolicy": "policy",
        "hook": "hooks",
    },
)
