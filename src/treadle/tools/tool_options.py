"""The options of `@tool`, and their checks: a wrong option raises ConfigError where it is written.

Used by function.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypedDict, get_args

from treadle.core.contracts.tool import Access, ProbeResult
from treadle.core.errors import ConfigError
from treadle.core.lazy_regex import compile_lazily
from treadle.core.text import suggest
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import EffectClass

# What every provider accepts.
TOOL_NAME = compile_lazily(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)


class ToolOptions(TypedDict, total=False):
    """Every option of `@tool`; each may be left out.

    name              what the model calls; the name of the function
    description       for the model; the docstring of the function
    effect            pure: can be repeated, and runs beside other calls · verifiable: `probe` can
                      find out whether it happened · irreversible: at most once (the default)
    approval          the user decides on every call, even if the policy allows it
    concurrent        may run beside other calls; the default for a pure tool
    timeout           seconds; the default is `tool_timeout` of the agent. Then the call is
                      cancelled (`context.is_cancelled`), and has 5 seconds to end
    max_result_chars  a longer result is truncated
    detachable        the call may continue in the background: `context.detach()`
    detach_after      seconds after which it continues there
    access            what a call touches: keys for the order of calls, files and commands for the
                      policy
    check             what else is wrong with the arguments, as a text for the model; None: nothing
    evidence, probe   of a verifiable tool: what is kept before a call, and whether it happened
    """

    name: str | None
    description: str | None
    effect: EffectClass
    approval: bool
    concurrent: bool | None
    timeout: float | None
    max_result_chars: int
    detachable: bool | None
    detach_after: float | None
    access: Callable[[Arguments], Access] | None
    check: Callable[[Arguments], str | None] | None
    probe: Callable[..., Awaitable[ProbeResult]] | None
    evidence: Callable[..., Awaitable[dict[str, Any]]] | None


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option that does not exist or has a wrong value."""
    for option, value in options.items():
        check = _CHECKS.get(option)
        if check is None:
            near = suggest(option, _CHECKS)
            hint = f"; did you mean `{near}`?" if near else "."
            raise ConfigError(f"a tool has no option `{option}`{hint} It has {', '.join(_CHECKS)}")
        expected = check(value)
        if expected:
            raise ConfigError(f"{option} of a tool is {value!r:.80}; expected {expected}")
    effect = options.get("effect", "irreversible")
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


def _check_text(value: object) -> str:
    return "" if value is None or isinstance(value, str) else "text"


def _check_effect(value: object) -> str:
    return "" if value in get_args(EffectClass) else "pure, verifiable or irreversible"


def _check_flag(value: object) -> str:
    return "" if isinstance(value, bool) else "True or False"


def _check_optional_flag(value: object) -> str:
    return "" if value is None else _check_flag(value)


def _check_timeout(value: object) -> str:
    is_good = value is None or (_is_seconds(value) and value != 0)
    return "" if is_good else "a number of seconds above 0, or None"


def _check_seconds(value: object) -> str:
    is_good = value is None or _is_seconds(value)
    return "" if is_good else "a number of seconds, or None"


def _is_seconds(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and value >= 0


def _check_count(value: object) -> str:
    is_good = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return "" if is_good else "an integer above 0"


def _check_function(value: object) -> str:
    return "" if value is None or callable(value) else "a function"


_CHECKS: Mapping[str, Callable[[object], str]] = {
    "name": _check_text,
    "description": _check_text,
    "effect": _check_effect,
    "approval": _check_flag,
    "concurrent": _check_optional_flag,
    "timeout": _check_timeout,
    "max_result_chars": _check_count,
    "detachable": _check_optional_flag,
    "detach_after": _check_seconds,
    "access": _check_function,
    "check": _check_function,
    "probe": _check_function,
    "evidence": _check_function,
}
