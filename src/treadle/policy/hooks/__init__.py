"""Hooks: the user's own programs and functions at named points of the loop.

    configured  what settings say: events, matchers, commands     approval  which of them may run
    speaking    the JSON that a command reads, the one it writes   binding   which files they run
    shell       a command as a Hook                                python    a function as a Hook

The points and what may be answered there are core/contracts/hook.py's; how a command is run is
the workspace's, and arrives as a function. Above: wiring.
"""

from treadle.policy.hooks.approval import (
    UnapprovedExtension,
    add_file_hashes,
    approve_hooks,
    approve_server,
    filter_approved_hooks,
    filter_approved_servers,
)
from treadle.policy.hooks.command_hook import (
    CommandHook,
    HookFailed,
    RunProgram,
    make_command_hooks,
)
from treadle.policy.hooks.config import HOOK_EVENTS, HookConfig, parse_hooks, read_hooks_file
from treadle.policy.hooks.function_hook import FunctionHook, hook

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
