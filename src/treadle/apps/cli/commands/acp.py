"""`treadle acp`: the agent for an editor, over stdin and stdout.

Hosts do not import each other, so apps/acp is imported by its name, as commands are.
"""

from __future__ import annotations

from importlib import import_module

from treadle.apps.assembly.parts import SessionOptions
from treadle.apps.cli.options import parse_command_line
from treadle.apps.cli.signals import harden_process, reopen_closed_streams
from treadle.apps.console import exit_codes
from treadle.apps.console.console import UsageError, report_errors
from treadle.apps.console.help_option import wants_help
from treadle.apps.settings.settings import SETTINGS_BY_NAME

USAGE = """\
usage: treadle acp [OPTIONS]     serve an editor over stdin and stdout

The editor starts this command and speaks the Agent Client Protocol with it. It takes the options
that are settings, such as --model, --permission-mode, --sandbox and --max-cost, and --allow,
--deny and --until: see `treadle help options`. docs/editors.md has the entries for Zed, JetBrains
and Neovim, ready to paste."""

ACP_MODULE = "treadle.apps.acp.main"
_OPTIONS = ("allow", "deny", "until")


def run(arguments: list[str]) -> int:
    if wants_help(arguments):
        print(USAGE)
        return exit_codes.SUCCESS
    reopen_closed_streams()
    return report_errors("treadle acp", lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    line = parse_command_line(arguments)
    if line.prompt is not None:
        raise UsageError("acp takes no prompt: the editor sends it")
    for name in line.options:
        if name not in SETTINGS_BY_NAME and name not in _OPTIONS:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is not for acp; see `treadle acp --help`")
    harden_process()
    options = SessionOptions(
        allow=line.texts("allow"), deny=line.texts("deny"), until=line.text("until")
    )
    exit_code: int = import_module(ACP_MODULE).start(line.settings(), options)
    return exit_code
