"""Finds the command that the first argument names, and runs its module.

Not a parser: each command parses its own arguments. Commands are imported when called, and nothing
is imported at the top, so that `--version` costs no more than the interpreter. Used by
`treadle.__main__`; uses the modules in commands/ and headless.py.
"""

from __future__ import annotations

import sys

from treadle._version import __version__, read_commit

USAGE_ERROR = 2
ABORTED = 130

# name -> (module or module:function, summary). The function, `run` if none is named, takes the
# arguments and returns the exit code.
_HERE = "treadle.apps.cli.commands"
_BACKGROUND = "treadle.apps.cli.background_sessions"
COMMANDS: dict[str, tuple[str, str]] = {
    "web": ("treadle.apps.web.main", "work in a browser, and look into sessions"),
    "login": ("treadle.apps.console.login", "give the key of a provider: it is checked and kept"),
    "models": (f"{_HERE}.models", "list the usable models; test or download one"),
    "permissions": (f"{_HERE}.permissions", "list, explain and back-test permission rules"),
    "mcp": (f"{_HERE}.mcp", "add, list, test MCP servers; log in to one; be one; also `plugin`"),
    "plugin": (f"{_HERE}.plugin", "add, list, update, remove plugins of Claude Code"),
    "trust": (f"{_HERE}.trust", "trust a folder: use its memory, settings, agents, hooks, servers"),
    "memory": (f"{_HERE}.memory", "what the agent keeps: list, accept, edit, forget"),
    "config": (
        f"{_HERE}.config",
        "show the settings and set one; the `prompt`; the agent's `memory`",
    ),
    "sessions": (
        f"{_HERE}.sessions",
        "list, search, fork, rewind; `replay`, `diff`, `test`, `bisect`, `whatif`",
    ),
    "ps": (
        f"{_BACKGROUND}.commands:run_ps",
        "sessions of --bg; `attach`, `logs`, `stop`, `send`; `resume`",
    ),
    "attach": (f"{_BACKGROUND}.commands:run_attach", "continue a session here, at this terminal"),
    "logs": (f"{_BACKGROUND}.commands:run_logs", "print what a session has done; -f follows it"),
    "stop": (f"{_BACKGROUND}.commands:run_stop", "interrupt a session in the background"),
    "send": (f"{_BACKGROUND}.send", "move a session to another machine or a fleet, and back"),
    "resume": (f"{_HERE}.resume", "list and continue suspended turns"),
    "undo": (f"{_HERE}.undo:run_undo", "undo the file changes of the last turn (and redo)"),
    "redo": (f"{_HERE}.undo:run_redo", "bring back what undo or rewind changed"),
    "replay": (f"{_HERE}.replay", "replay a session offline"),
    "diff": (f"{_HERE}.replay:run_diff", "compare two sessions"),
    "test": (f"{_HERE}.test", "run recorded sessions again with another model or prompt"),
    "review": (f"{_HERE}.review", "review commits: findings as data, and an exit code for CI"),
    "bisect": ("treadle.apps.cli.trials.bisect", "find the turn of a session that broke a command"),
    "whatif": ("treadle.apps.cli.trials.whatif", "run a turn again with other models or prompts"),
    "apply": ("treadle.apps.cli.trials.apply", "carry out what a dry run recorded"),
    "cost": (f"{_HERE}.cost", "show costs by day, model, project, session"),
    "fleet": ("treadle.apps.fleet.commands", "run many tasks, on one or more machines"),
    "prompt": (f"{_HERE}.prompt", "print the system prompt and its size"),
    "acp": (f"{_HERE}.acp", "serve an editor (Agent Client Protocol)"),
    "doctor": (
        f"{_HERE}.doctor",
        "check the installation; `tour` of the terminal; `completions`",
    ),
    "tour": ("treadle.apps.tui.tour.main", "learn the terminal in two minutes, without a key"),
    "completions": (f"{_HERE}.completions", "print completions for bash, zsh or fish"),
    "supervisor": (f"{_BACKGROUND}.commands:run_supervisor", "what starts background sessions"),
}
# Found by `treadle NAME` too, which then suggests `treadle sessions NAME`.
SESSION_COMMANDS = (
    "list",
    "search",
    "show",
    "turns",
    "export",
    "fork",
    "rewind",
    "import",
    "prune",
)
AGENT_MODULE = "treadle.apps.cli.start"
# the help names them with `-p`, `mcp`, `ps`, `undo`, `sessions`, `config` and `doctor`
HIDDEN_COMMANDS = (
    *("attach", "logs", "stop", "send", "resume", "supervisor", "bisect", "whatif", "apply"),
    *("review", "redo", "replay", "diff", "test", "prompt", "memory", "plugin", "tour"),
    "completions",
)

# Has to fit on a screen of 24 lines.
HELP_TEMPLATE = """\
usage: treadle [PROMPT] [OPTIONS]       work interactively in the terminal
       treadle -p PROMPT [OPTIONS]      run one task, print the answer; `review` a change
       treadle COMMAND [ARGUMENTS]

{commands}

options (all: treadle help options; --version; defaults: ~/.treadle/config.toml)
  --model NAME               --permission-mode plan|ask|accept-edits|auto|bypass
  --continue, --resume [ID]  --allow RULE, --deny RULE, --sandbox auto|required|off
  --until CMD, --suspend     --max-turns N, --max-cost USD, --max-time 10m
  --file PATH, or @PATH      --output-format text|json|stream-json, --output-schema PATH"""


def run(arguments: list[str], commands: dict[str, tuple[str, str]] = COMMANDS) -> int:
    try:
        try:
            return _dispatch(arguments, commands)
        finally:
            if sys.stdout is not None and not sys.stdout.closed:
                sys.stdout.flush()
    except KeyboardInterrupt:
        return ABORTED
    except BrokenPipeError:
        _discard_stdout()
        return 141
    except OSError as error:
        if error.filename is not None:
            raise
        # No command has reported it: output that cannot be written.
        from treadle.apps.console.exit_codes import IO_ERROR

        _discard_stdout()
        print(f"treadle: cannot write to stdout: {error.strerror}", file=sys.stderr)
        return IO_ERROR


def _dispatch(arguments: list[str], commands: dict[str, tuple[str, str]]) -> int:
    match arguments:
        case ["--version" | "-V", *_]:
            commit = read_commit()
            print(
                f"treadle {__version__} (commit {commit})" if commit else f"treadle {__version__}"
            )
        case ["help", "options"]:
            return run_module(COMMANDS["completions"][0], ["options"])
        case ["help", name, *rest] | [name, "help", *rest] if name in commands:
            return run_module(commands[name][0], [*rest, "--help"])
        case ["--help" | "-h", *_] | ["help"] | ["help", "help" | "--help" | "-h", *_]:
            print(format_help(commands))
        case ["help", unknown, *_]:
            return _report_unknown_command([unknown], commands)
        case [name, *rest] if name in commands:
            if option := _find_empty_option(rest):
                print(f"treadle {name}: {option}: its value is empty", file=sys.stderr)
                return USAGE_ERROR
            return run_module(commands[name][0], rest)
        case [word, *rest] if _describe_peer_command(word, rest):
            return _report_unknown_command(arguments, commands)
        case [] | [""]:
            return run_module(AGENT_MODULE, [])
        case [first, *_] if first.startswith("-") or " " in first:
            return run_module(AGENT_MODULE, arguments)
        case [word, *rest] if _is_prompt(word, rest, commands):
            return run_module(AGENT_MODULE, arguments)
        case _:
            return _report_unknown_command(arguments, commands)
    return 0


def _find_empty_option(words: list[str]) -> str:
    """The first option with an empty value, as of an unset variable; "" if there is none."""
    own = words[: words.index("--")] if "--" in words else words
    for at, word in enumerate(own):
        name, has_value, given = word.partition("=")
        if name.startswith("--") and ([given] if has_value else own[at + 1 : at + 2]) == [""]:
            return name
    return ""


def _is_prompt(word: str, rest: list[str], commands: dict[str, tuple[str, str]]) -> bool:
    """Whether a word is a prompt, as in `treadle fix`: it is nearly no command, and no word that
    is not an option follows."""
    return (not rest or rest[0].startswith("-")) and not _find_nearest(word, commands)


def _describe_peer_command(word: str, rest: list[str]) -> str:
    """What `claude WORD` or `codex WORD` is here; "" if it is none of theirs, or the word begins a
    prompt without quotes."""
    if word.startswith("-") or " " in word or not word:
        return ""
    from treadle.apps.conversation.commands.peer_names import PEER_SUBCOMMANDS

    is_command = not rest or rest[0].startswith("-") or " " in rest[0]
    return PEER_SUBCOMMANDS[word].describe() if is_command and word in PEER_SUBCOMMANDS else ""


def _find_nearest(word: str, commands: dict[str, tuple[str, str]]) -> str:
    """The command that was probably meant; "" if none is near."""
    from treadle.lib.text.text import suggest

    known = {name: name for name in commands} | {
        name: f"sessions {name}" for name in SESSION_COMMANDS if name not in commands
    }
    nearest = suggest(word.lower(), known, cutoff=0.75)
    return known[nearest] if nearest is not None else ""


def _report_unknown_command(words: list[str], commands: dict[str, tuple[str, str]]) -> int:
    """Name the nearest command; several words are more likely a prompt without quotes."""
    nearest = _find_nearest(words[0], commands)
    hint = "see `treadle --help`"
    if theirs := _describe_peer_command(words[0], words[1:]):
        hint = f"{theirs}. As a prompt: treadle -- {words[0]}"
    elif nearest:
        hint = f"did you mean `treadle {nearest}`? As a prompt: treadle -- {words[0]}"
    elif len(words) > 1:
        hint = 'a prompt needs quotes: treadle "' + " ".join(words).replace('"', '\\"') + '"'
    print(f"treadle: unknown command {words[0]!r}; {hint}", file=sys.stderr)
    return USAGE_ERROR


def run_module(target: str, arguments: list[str]) -> int:
    """Import `module` or `module:function` and call it."""
    import gc
    import os
    from importlib import import_module

    # Imports make many objects and no garbage: fewer collections save a tenth of a short run.
    gc.set_threshold(100_000, 20, 20)
    if os.path.exists(os.path.expanduser("~/.treadle/keys.json")):  # noqa: PTH110, PTH111 - treadle_home(), quick
        from treadle.apps.settings.stored_keys import load_keys

        load_keys(os.environ)
    module, _, function = target.partition(":")
    exit_code: int = getattr(import_module(module), function or "run")(arguments)
    return exit_code


def _discard_stdout() -> None:
    """Nothing can be written to stdout: the interpreter must not flush to it when it exits."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def format_help(commands: dict[str, tuple[str, str]]) -> str:
    width = max(map(len, commands))
    rows = [(name, text) for name, (_, text) in commands.items() if name not in HIDDEN_COMMANDS]
    lines = [f"  {name:{width}}  {text}" for name, text in rows]
    return HELP_TEMPLATE.format(commands="\n".join(lines))
