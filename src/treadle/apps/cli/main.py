"""The first word of a command line, and the module that answers to it.

Not a parser: a command reads its own arguments. Commands are named here and imported when called,
so that a command costs no more than it uses, and `--version` no more than the interpreter: even
`typing` would double it, so nothing is imported at the top. Above: the launchers and
`treadle.__main__`. Below: one module a command.
"""

from __future__ import annotations

import sys

from treadle._version import __version__

USAGE_ERROR = 2

# name -> (module, summary). The module has `run(arguments: list[str]) -> int`, the exit code.
COMMANDS: dict[str, tuple[str, str]] = {
    "models": ("treadle.apps.cli.models", "list the models that can be used here; test or get one"),
}


def run(arguments: list[str], commands: dict[str, tuple[str, str]] = COMMANDS) -> int:
    match arguments:
        case ["--version" | "-V", *_]:
            print(f"treadle {__version__}")
        case ["--help" | "-h" | "help", *_]:
            print(usage(commands))
        case [name, *rest] if name in commands:
            return call(commands[name][0], rest)
        case [unknown, *_]:
            print(f"treadle: no command {unknown!r}; treadle --help lists them", file=sys.stderr)
            return USAGE_ERROR
        case _:
            print(usage(commands), file=sys.stderr)
            return USAGE_ERROR
    return 0


def call(module: str, arguments: list[str]) -> int:
    from importlib import import_module

    exit_code: int = import_module(module).run(arguments)
    return exit_code


def usage(commands: dict[str, tuple[str, str]]) -> str:
    width = max(map(len, [*commands, "--version"]))
    rows = [(name, summary) for name, (_, summary) in commands.items()]
    rows += [
        ("--version", "say which version this is"),
        ("--help", "say this; treadle COMMAND --help says more of a command"),
    ]
    lines = [f"  {name:{width}}  {summary}" for name, summary in rows]
    return "\n".join(["usage: treadle COMMAND [ARGUMENTS]", "", *lines])
