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
ABORTED = 130

# name -> (module, summary). The module has `run(arguments: list[str]) -> int`, the exit code.
COMMANDS: dict[str, tuple[str, str]] = {
    "models": (
        "treadle.apps.cli.commands.models",
        "list the models that can be used here; test or get one",
    ),
    "permissions": (
        "treadle.apps.cli.commands.permissions",
        "list the rules; explain a verdict; back-test a rule",
    ),
    "trust": (
        "treadle.apps.cli.commands.trust",
        "let a folder's own files count: memory, settings, agents, hooks, servers",
    ),
    "config": ("treadle.apps.cli.commands.config", "show every setting and where it comes from"),
    "sessions": (
        "treadle.apps.cli.commands.sessions",
        "list, search, show, fork, rewind, undo, prune",
    ),
    "resume": (
        "treadle.apps.cli.commands.resume",
        "go on with what was parked; answer what it waits for",
    ),
    "undo": (
        "treadle.apps.cli.commands.undo",
        "take back what the last turn changed in files (and redo)",
    ),
    "redo": ("treadle.apps.cli.commands.redo", "bring back what undo took"),
    "replay": ("treadle.apps.cli.commands.replay", "run a session again without a network"),
    "diff": ("treadle.apps.cli.commands.diff", "show where two sessions part"),
    "cost": (
        "treadle.apps.cli.commands.cost",
        "show what was spent, by day, model, project, session",
    ),
    "prompt": (
        "treadle.apps.cli.commands.prompt",
        "print what the model is told first, with sizes",
    ),
    "doctor": ("treadle.apps.cli.commands.doctor", "check what is needed here, and say what to do"),
    "completions": (
        "treadle.apps.cli.commands.completions",
        "print completions: bash, zsh or fish",
    ),
}
AGENT_MODULE = "treadle.apps.cli.headless"
HIDDEN_COMMANDS = ("redo",)  # named with another command, where there is little room

# It has to fit a screen of 24 lines.
HELP_TEMPLATE = """\
usage: treadle [PROMPT] [OPTIONS]       work with it at the terminal
       treadle -p PROMPT [OPTIONS]      do one task, print the answer
       treadle COMMAND [ARGUMENTS]

{commands}

options of -p (all of them: treadle help options; also in ~/.treadle/config.toml)
  --model NAME               --permission-mode plan|ask|accept-edits|auto|bypass
  --continue, --resume ID    --allow RULE, --deny RULE, --sandbox auto|required|off
  --until COMMAND, --park    --max-turns N, --max-cost USD, --max-time 10m
  --file PATH, or @PATH      --output-format text|json|stream-json, --output-schema PATH"""


def run(arguments: list[str], commands: dict[str, tuple[str, str]] = COMMANDS) -> int:
    try:
        return _dispatch(arguments, commands)
    except KeyboardInterrupt:
        return ABORTED
    except BrokenPipeError:
        _discard_stdout()
        return 141


def _dispatch(arguments: list[str], commands: dict[str, tuple[str, str]]) -> int:
    match arguments:
        case ["--version" | "-V", *_]:
            print(f"treadle {__version__}")
        case ["help", "options"]:
            return run_module("treadle.apps.cli.commands.completions", ["options"])
        case ["--help" | "-h" | "help", *_]:
            print(format_help(commands))
        case [name, *rest] if name in commands:
            return run_module(commands[name][0], rest)
        case [] | [""]:
            return run_module(AGENT_MODULE, [])
        case [first, *_] if first.startswith("-") or " " in first:
            return run_module(AGENT_MODULE, arguments)
        case [unknown, *_]:
            print(f"treadle: no command {unknown!r}; treadle --help lists them", file=sys.stderr)
            return USAGE_ERROR
    sys.stdout.flush()
    return 0


def run_module(module: str, arguments: list[str]) -> int:
    import gc
    from importlib import import_module

    # Loading modules makes tens of thousands of objects and no garbage: looking for it less often
    # saves a tenth of a short run.
    gc.set_threshold(50_000, 20, 20)
    exit_code: int = import_module(module).run(arguments)
    return exit_code


def _discard_stdout() -> None:
    """Nobody reads standard output: the interpreter must not try to flush it at the end."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def format_help(commands: dict[str, tuple[str, str]]) -> str:
    width = max(map(len, [*commands, "--version"]))
    rows = [(name, text) for name, (_, text) in commands.items() if name not in HIDDEN_COMMANDS]
    rows.append(("--version", "say which version this is"))
    return HELP_TEMPLATE.format(
        commands="\n".join(f"  {name:{width}}  {text}" for name, text in rows)
    )
