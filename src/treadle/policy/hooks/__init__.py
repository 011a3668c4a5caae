"""Hooks: the user's own programs and functions at named points of the loop.

    configured  what settings say: events, matchers, commands     approval  which of them may run
    speaking    the JSON that a command reads, the one it writes   binding   which files they run
    shell       a command as a Hook                                python    a function as a Hook

The points and what may be answered there are core/contracts/hook.py's; how a command is run is
the workspace's, and arrives as a function. Above: wiring.
"""

from treadle.policy.hooks.approval import (
    Waiting,
    approve_hooks,
    approve_server,
    approved_hooks,
    approved_servers,
    bound,
)
from treadle.policy.hooks.configured import EVENTS, HookCommand, hooks_of_file, read_hooks
from treadle.policy.hooks.python import FunctionHook, hook
from treadle.policy.hooks.shell import HookFailed, Run, ShellHook, shell_hooks

__all__ = [
    "EVENTS",
    "FunctionHook",
    "HookCommand",
    "HookFailed",
    "Run",
    "ShellHook",
    "Waiting",
    "approve_hooks",
    "approve_server",
    "approved_hooks",
    "approved_servers",
    "bound",
    "hook",
    "hooks_of_file",
    "read_hooks",
    "shell_hooks",
]
