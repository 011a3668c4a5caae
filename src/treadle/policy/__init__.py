"""What an agent may do: permission rules, command analysis, modes, trust, hooks, budgets.

    from treadle.policy import AllowAll

Only the user can add permissions; everything else here removes some. Uses core contracts only. The
names below load when they are used.
"""

from treadle._lazy_exports import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from treadle.core.contracts.policy import (
        Allow,
        AllowAll,
        Ask,
        BasePolicy,
        DefaultPolicy,
        Deny,
        PermissionRequest,
        Policy,
        Verdict,
    )
    from treadle.policy.hooks.function_hook import hook
    from treadle.policy.policy import RulePolicy

__all__ = [
    "Allow",
    "AllowAll",
    "Ask",
    "BasePolicy",
    "DefaultPolicy",
    "Deny",
    "PermissionRequest",
    "Policy",
    "RulePolicy",
    "Verdict",
    "hook",
]

_CONTRACT = "treadle.core.contracts.policy"
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Allow": _CONTRACT,
        "AllowAll": _CONTRACT,
        "Ask": _CONTRACT,
        "BasePolicy": _CONTRACT,
        "DefaultPolicy": _CONTRACT,
        "Deny": _CONTRACT,
        "PermissionRequest": _CONTRACT,
        "Policy": _CONTRACT,
        "RulePolicy": "policy",
        "Verdict": _CONTRACT,
        "hook": "hooks.function_hook",
    },
)
