"""Hooks: the user's own programs and functions at named points of the loop.

    config         hooks in settings: events, matchers, commands
    approval       which hooks and servers of a project may run
    script_hashes  the files that they run
    protocol       the JSON that a command reads and writes
    command_hook   a command as a Hook
    patch_inputs   its input for each file of a patch
    function_hook  a function as a Hook

core/contracts/hook.py defines the points and the answers. Used by apps/assembly, which passes in
the function that runs a program.
"""

from treadle.policy.hooks.approval import (
    UnapprovedExtension,
    add_file_hashes,
    approve_definitions,
    approve_hooks,
    approve_server,
    filter_approved_definitions,
    filter_approved_hooks,
    filter_approved_servers,
)
from treadle.policy.hooks.command_hook import (
    CommandHook,
    HookFailed,
    RunHook,
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
    "RunHook",
    "RunProgram",
    "CommandHook",
    "UnapprovedExtension",
    "approve_hooks",
    "approve_server",
    "approve_definitions",
    "filter_approved_definitions",
    "filter_approved_hooks",
    "filter_approved_servers",
    "add_file_hashes",
    "hook",
    "read_hooks_file",
    "parse_hooks",
    "make_command_hooks",
]
