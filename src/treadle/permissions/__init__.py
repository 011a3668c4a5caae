"""What an agent may do: permission rules, the verdict on a call, its risks, modes, trust.

Only the user can add permissions; everything else here removes some. Uses the core and lib only.
The names below load at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.lib.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.core.contracts.policy import AllowAll, DefaultPolicy
    from treadle.permissions.policy import RulePolicy

__all__ = ["AllowAll", "DefaultPolicy", "RulePolicy"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "AllowAll": "treadle.core.contracts.policy",
        "DefaultPolicy": "treadle.core.contracts.policy",
        "RulePolicy": "policy",
    },
)
