"""The extras of the package: what each is for, which are installed, what to say if one is not.

The base is the engine and the command line. A feature that needs more calls `require_extra` before
it imports anything. pyproject.toml has the packages of each extra. Uses errors.py only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from treadle.core.errors import MissingExtra

Extra = Literal[
    "tui", "web", "mcp", "acp", "embedded", "otel", "fleet", "images", "agui", "a2a", "ray"
]

EXTRA_FEATURES: Mapping[Extra, str] = {
    "tui": "the full screen",
    "web": "the page in a browser",
    "mcp": "MCP servers",
    "acp": "editors",
    "embedded": "embedded models",
    "otel": "telemetry",
    "fleet": "PostgreSQL",
    "images": "smaller pictures",
    "agui": "pages that speak AG-UI",
    "a2a": "agents that speak A2A",
    "ray": "fleets on a cluster of Ray",
}
# What the extra `all` brings: not what is too large for those who do not use it.
ALL_EXTRAS: tuple[Extra, ...] = tuple(extra for extra in EXTRA_FEATURES if extra != "ray")
_TOOL_INSTALLERS = {
    "pipx_metadata.json": "pipx install --force",
    "uv-receipt.toml": "uv tool install",
}
# The module that tells whether an extra is installed.
_MODULES: Mapping[Extra, str] = {
    "tui": "textual",
    "web": "uvicorn",
    "mcp": "mcp",
    "acp": "acp",
    "embedded": "xllamacpp",
    "otel": "opentelemetry",
    "fleet": "dbos",
    "images": "PIL",
    "agui": "ag_ui",
    "a2a": "a2a",
    "ray": "ray",
}


def is_installed(extra: Extra) -> bool:
    """Whether the packages of an extra are installed; imports none of them."""
    from importlib.util import find_spec

    return find_spec(_MODULES[extra]) is not None


def require_extra(extra: Extra, addition: str = "") -> None:
    """Raise MissingExtra, with `describe_missing`, unless the extra is installed."""
    if not is_installed(extra):
        raise MissingExtra(describe_missing(extra, addition), extra=extra)


def describe_missing(extra: Extra, addition: str = "") -> str:
    """The sentence about an extra that is not installed, with the command that installs it.

    `addition` ends it: what works without the extra, or what does not happen now.
    """
    ending = f"; {addition}" if addition else ""
    feature, command = EXTRA_FEATURES[extra], format_install_command([extra])
    return f"the extra {extra!r} ({feature}) is not installed: {command}{ending}"


def format_install_command(extras: Iterable[Extra]) -> str:
    """The command for this environment: of pipx or uv, which leave a file in theirs, or of pip."""
    wanted = {*extras}
    installer = "pip install"
    for file, command in _TOOL_INSTALLERS.items():
        if Path(sys.prefix, file).exists():
            # These replace the environment: what is installed now has to be named, too.
            wanted |= {extra for extra in EXTRA_FEATURES if is_installed(extra)}
            installer = command
    names = ",".join(extra for extra in EXTRA_FEATURES if extra in wanted)
    return f"{installer} 'treadle[{names}]'"
