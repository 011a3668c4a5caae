"""The options of `@tool`, and their checks: a wrong option raises ConfigError where it is written.

option_types.py has their types. Used by function.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from treadle.core.argument_checks import (
    FLAG,
    TEXT,
    Expected,
    check,
    function_of,
    number,
    one_of,
    optional,
    whole_number,
)
from treadle.core.contracts.tool import ToolKind
from treadle.core.errors import ConfigError
from treadle.core.transcript.entries import EffectClass
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.text import suggest

if TYPE_CHECKING:
    from treadle.tools.option_types import ToolOptions

# What every provider accepts.
TOOL_NAME = compile_lazily(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option that does not exist or has a wrong value."""
    for option, value in options.items():
        expected = EXPECTED_OPTIONS.get(option)
        if expected is None:
            near = suggest(option, EXPECTED_OPTIONS)
            hint = f"; did you mean `{near}`?" if near else "."
            known = ", ".join(EXPECTED_OPTIONS)
            raise ConfigError(f"a tool has no option `{option}`{hint} It has {known}")
        check(f"{option} of a tool", value, expected)


def check_effect(options: ToolOptions) -> None:
    """Raise ConfigError if the effect needs a `probe`, or never calls the one that is given."""
    effect = options.get("effect", "irreversible")
    if effect == "verifiable" and options.get("probe") is None:
        raise ConfigError(
            "effect of a tool is 'verifiable', and it has no `probe`; give the function that finds "
            "out whether a call happened, or use effect='irreversible'"
        )
    for option in ("probe", "evidence"):
        if options.get(option) is not None and effect != "verifiable":
            problem = f"is never called for the effect {effect}; expected effect='verifiable'"
            raise ConfigError(f"{option} of a tool {problem}")


def check_name(name: object) -> None:
    """Raise ConfigError for a name that providers refuse."""
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r:.80} cannot be the name of a tool; expected 1 to 64 letters, digits, _ or -. "
            "Give another one: tool(function, name=...)"
        )


_OPTIONAL_TEXT = optional(TEXT)
_OPTIONAL_FLAG = optional(FLAG)
_OF_ARGUMENTS = optional(function_of("arguments"))
EXPECTED_OPTIONS: Mapping[str, Expected] = {
    "name": _OPTIONAL_TEXT,
    "description": _OPTIONAL_TEXT,
    "effect": one_of(*get_args(EffectClass)),
    "approval": FLAG,
    "kind": one_of(*get_args(ToolKind)),
    "concurrent": _OPTIONAL_FLAG,
    "timeout": optional(number("a number of seconds above 0", lambda value: 0 < value < math.inf)),
    "max_result_chars": whole_number(1),
    "detachable": _OPTIONAL_FLAG,
    "detach_after": optional(number("a number of seconds", lambda value: 0 <= value < math.inf)),
    "access": _OF_ARGUMENTS,
    "check": _OF_ARGUMENTS,
    "preview": _OF_ARGUMENTS,
    "probe": optional(function_of("arguments", "evidence", "context")),
    "evidence": optional(function_of("arguments", "context")),
    "undo": optional(function_of("arguments", "result")),
}
