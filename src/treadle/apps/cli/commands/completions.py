"""`treadle completions SHELL`: a completion script for bash, zsh or fish.

Made from the tables of commands and options; completing a word does not run treadle. Also prints
`treadle help options`.
"""

from __future__ import annotations

import sys

from treadle.apps.cli.main import COMMANDS
from treadle.apps.cli.options import OPTIONS, CliOption
from treadle.apps.console import exit_codes
from treadle.apps.console.help_option import wants_help

HELP_WIDTH = 88
USAGE = """\
usage: treadle completions bash >> ~/.bashrc
       treadle completions zsh > ~/.zfunc/_treadle        (a folder in $fpath)
       treadle completions fish > ~/.config/fish/completions/treadle.fish"""


def run(arguments: list[str]) -> int:
    if wants_help(arguments):
        print(USAGE)
        return exit_codes.SUCCESS
    match arguments:
        case ["bash"]:
            print(render_bash())
        case ["zsh"]:
            print(render_zsh())
        case ["fish"]:
            print(render_fish())
        case ["options"]:
            print(render_options_help())
        case _:
            unknown = f"there are no completions for {arguments[0]!r}. " if arguments else ""
            print(
                f"treadle completions: {unknown}Name the shell: bash, zsh or fish", file=sys.stderr
            )
            print(USAGE, file=sys.stderr)
            return exit_codes.USAGE_ERROR
    return exit_codes.SUCCESS


def render_bash() -> str:
    flags = " ".join(f"--{option.name}" for option in OPTIONS)
    cases = "\n".join(_render_bash_case(option) for option in OPTIONS if option.metavar)
    return f"""\
_treadle() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    case $before in
{cases}
        completions) COMPREPLY=($(compgen -W "bash zsh fish" -- "$word")); return ;;
    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "{flags} --version" -- "$word"))
    elif [[ $COMP_CWORD == 1 ]]; then
        COMPREPLY=($(compgen -W "{" ".join(COMMANDS)} help" -- "$word"))
    fi
}}
complete -o default -F _treadle treadle"""


def _render_bash_case(option: CliOption) -> str:
    names = f"--{option.name}" + (f"|-{option.short}" if option.short else "")
    if option.choices:
        reply = f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$word"))'
    elif option.metavar == "PATH":
        reply = 'COMPREPLY=($(compgen -f -- "$word"))'
    else:
        reply = "COMPREPLY=()"
    return f"        {names}) {reply}; return ;;"


def render_zsh() -> str:
    lines = "\n".join(f"        {_render_zsh_option(option)} \\" for option in OPTIONS)
    texts = {name: _strip_quotes(text) for name, (_, text) in COMMANDS.items()}
    commands = "\n".join(f"        '{name}:{text}'" for name, text in texts.items())
    return f"""\
#compdef treadle
_treadle() {{
    local -a commands=(
{commands}
    )
    _arguments -s \\
{lines}
        '1: :{{_describe command commands}}' '*:file:_files'
}}
_treadle "$@\""""


def _render_zsh_option(option: CliOption) -> str:
    many = "*" if option.repeatable else ""
    value = ""
    if option.choices:
        value = f":{option.metavar}:({' '.join(option.choices)})"
    elif option.metavar:
        value = f":{option.metavar}:" + ("_files" if option.metavar == "PATH" else "")
    text = f"[{_strip_quotes(option.help)}]{value}'"
    if option.short and not many:
        both = f"(-{option.short} --{option.name})"
        return f"'{both}'{{-{option.short},--{option.name}}}'{text}"
    return f"'{many}--{option.name}{text}"


def render_fish() -> str:
    lines = ["complete -c treadle -f"]
    for name, (_, text) in COMMANDS.items():
        summary = _strip_quotes(text)
        lines.append(f"complete -c treadle -n __fish_use_subcommand -a {name} -d '{summary}'")
    for option in OPTIONS:
        parts = [f"complete -c treadle -l {option.name}"]
        if option.short:
            parts.append(f"-s {option.short}")
        if option.choices:
            parts.append(f"-x -a '{' '.join(option.choices)}'")
        elif option.metavar:
            parts.append("-r -F" if option.metavar == "PATH" else "-x")
        lines.append(f"{' '.join(parts)} -d '{_strip_quotes(option.help)}'")
    return "\n".join(lines)


def _strip_quotes(text: str) -> str:
    """A text that is safe inside quotes, brackets and colons of every shell."""
    return text.replace("'", "").replace("[", "(").replace("]", ")").replace(":", ",")


def render_options_help() -> str:
    """All options of `treadle`; a text that is longer than the line goes on below itself."""
    import textwrap

    rows = []
    for option in OPTIONS:
        short = f"-{option.short}, " if option.short else "    "
        value = f" {option.metavar}" if option.metavar else ""
        value = f" [{option.metavar}]" if option.is_value_optional else value
        choices = f" ({', '.join(option.choices)})" if option.choices else ""
        rows.append((f"{short}--{option.name}{value}", option.help + choices))
    width = max(len(left) for left, _ in rows)
    indent = " " * (width + 4)
    return "\n".join(
        textwrap.fill(
            right, HELP_WIDTH, initial_indent=f"  {left:{width}}  ", subsequent_indent=indent,
            break_long_words=False, break_on_hyphens=False,
        )
        for left, right in rows
    )  # fmt: skip
