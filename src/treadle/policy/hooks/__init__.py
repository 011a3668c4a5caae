"""Hooks: the user's own programs and functions at named points of the loop.

    configured  what settings say: events, matchers, commands     approval  which of them may run
    speaking    the JSON that a command reads, the one it writes   binding   which files they run
    shell       a command as a Hook                                python    a function as a Hook

The points and what may be answered there are core/contracts/hook.py's; how a command is run is
the workspace's, and arrives as a function. Above: wiring.
"""

from treadle.policy.hooks.approval import (
    UnapprovedExtension,
    approve_hooks,
    approve_server,
    filter_approved_hooks,
    filter_approved_servers,
    add_file_hashes,
)
from treadle.policy.hooks.configured import HOOK_EVENTS, HookConfig, read_hooks_file, parse_hooks
from treadle.policy.hooks.python import FunctionHook, hook
from treadle.policy.hooks.shell import HookFailed, RunProgram, CommandHook, make_command_hooks

__all__ = [
    "HOOK_EVENTS",
    "FunctionHook",
    "HookConfig",
    "HookFailed",
    "RunProgram",
    "CommandHook",
    "UnapprovedExtension",
    "approve_hooks",
    "approve_server",
    "filter_approved_hooks",
    "filter_approved_servers",
    "add_file_hashes",
    "hook",
    "read_hooks_file",
    "parse_hooks",
    "make_command_hooks",
]
