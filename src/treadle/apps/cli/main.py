"""The first word of a command line, and the module that answers to it.

Not a parser: a command reads its own arguments. Commands are named here and imported when called,
so that `--version` costs an interpreter and a command no more than it uses. Above: the launchers
and `treadle.__main__`. Below: one module a command.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from treadle._version import __version__

USAGE_ERROR = 2


class Command(NamedTuple):
    """A command's home: a module with `run(arguments: Sequence[str]) -> int`, the exit code."""

    module: str
    summary: str


COMMANDS: Mapping[str, Command] = {}


def run(arguments: Sequence[str], commands: Mapping[str, Command] = COMMANDS) -> int:
    match arguments:
        case ["--version" | "-V", *_]:
            print(f"treadle {__version__}")
        case ["--help" | "-h" | "help", *_]:
            print(usage(commands))
        case [name, *rest] if name in commands:
            exit_code: int = import_module(commands[name].module).run(rest)
            return exit_code
        case [unknown, *_]:
            print(f"treadle: no command {unknown!r}; treadle --help lists them", file=sys.stderr)
            return USAGE_ERROR
        case _:
            print(usage(commands), file=sys.stderr)
            return USAGE_ERROR
    return 0


def usage(commands: Mapping[str, Command]) -> str:
    lines = ["usage: treadle COMMAND [ARGUMENTS]", ""]
    width = max(map(len, [*commands, "--version"]))
    lines += [f"  {name:{width}}  {command.summary}" for name, command in commands.items()]
    lines += [f"  {'--version':{width}}  say which version this is"]
    lines += [f"  {'--help':{width}}  say this; treadle COMMAND --help says more of a command"]
    return "\n".join(lines)
