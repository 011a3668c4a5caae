"""Hooks: the user's own programs and functions at named points of the loop.

    config         hooks in settings: events, matchers, commands
    approval       which hooks and servers of a project may run
    script_hashes  the files that they run
    protocol       the JSON that a command reads and writes
    command_hook   a command as a Hook, asked about each file of a patch
    background_hooks  commands that run beside the agent
    function_hook  a function as a Hook
    checkers       diagnostics after edits

core/contracts/hook.py defines the points and the answers. Used by apps/assembly, which passes in
the function that runs a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.lib.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.hooks.function_hook import hook

__all__ = ["hook"]

__getattr__, __dir__ = lazy_exports(__name__, {"hook": "function_hook"})
