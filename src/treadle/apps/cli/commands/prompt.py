"""`treadle prompt`: what the model is told first in this folder, and how large each part is.

Wires an agent as a run here would and asks nobody: the text is the very one that is sent. It goes
to standard output, sizes and notes to standard error. Above: `main.py`. Below: the wiring.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from treadle.apps.assembly import SessionOptions, build_agent
from treadle.apps.assembly.rules import is_trusted
from treadle.apps.cli.console import print_error, print_line
from treadle.apps.cli.exit_codes import SUCCESS, USAGE_ERROR, exit_code_for
from treadle.apps.cli.options import UsageError
from treadle.apps.settings import Settings, load_settings
from treadle.context.prompt import SystemPrompt
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import TreadleError
from treadle.sessions.log.journal import Journal

HELP = """\
usage: treadle prompt [--model NAME] [--permission-mode MODE] [-p] [--tools]

What the model is told first here, on standard output; the size of each section on standard error.
  -p, --print    as in a run with -p, where nobody can answer questions
  --tools        the definitions of the tools too"""


class PromptReport(msgspec.Struct, frozen=True):
    """All that a model is told before the first message."""

    model: str
    prompt: SystemPrompt
    tools: tuple[ToolSpec, ...]
    servers: tuple[str, ...]  # not started for this, so their tools are not known
    notes: tuple[str, ...]


def run(arguments: list[str]) -> int:
    if any(word in ("--help", "-h") for word in arguments):
        print(HELP)
        return SUCCESS
    try:
        flags, is_alone, with_tools = _parse_arguments(arguments)
        folder = Path.cwd()
        settings = load_settings(folder, flags, is_trusted=lambda: is_trusted(folder))
        told = asyncio.run(_make_report(settings, folder, is_alone))
    except UsageError as error:
        print_error(f"treadle prompt: {error}")
        return USAGE_ERROR
    except TreadleError as error:
        print_error(f"treadle prompt: {error}")
        return exit_code_for(error)
    show = print_line if sys.stdout.isatty() else print
    show(told.prompt.text)
    if with_tools:
        for tool in told.tools:
            show(f"\n{_format_tool(tool)}")
    sys.stdout.flush()
    for line in (*told.notes, format_sizes(told)):
        print_error(line)
    return SUCCESS


def _parse_arguments(arguments: Sequence[str]) -> tuple[dict[str, object], bool, bool]:
    flags: dict[str, object] = {}
    is_alone = with_tools = False
    words = list(arguments)
    while words:
        name, equals, value = words.pop(0).partition("=")
        match name:
            case "--tools" if not equals:
                with_tools = True
            case "-p" | "--print" if not equals:
                is_alone = True
            case "--model" | "--permission-mode":
                if not equals and not words:
                    raise UsageError(f"{name} needs a value")
                flags[name[2:].replace("-", "_")] = value if equals else words.pop(0)
            case _:
                raise UsageError(f"{name!r} is not understood; treadle prompt --help says what is")
    return flags, is_alone, with_tools


async def _make_report(settings: Settings, folder: Path, is_headless: bool) -> PromptReport:
    wired = await build_agent(settings, folder, SessionOptions(interactive=not is_headless))
    try:
        return PromptReport(
            wired.model.name,
            wired.prompt,
            tuple(tool.spec for tool in wired.agent.config.source.tools()),
            tuple(server.name for server in wired.servers),
            wired.notes,
        )
    finally:
        await wired.store.aclose()
        if isinstance(wired.store, Journal):
            shutil.rmtree(wired.store.session_dir, ignore_errors=True)  # nothing was said in it
        await wired.aclose()


def format_sizes(report: PromptReport) -> str:
    """The size of each section, and of the tools' definitions."""
    tools = "".join(map(_format_tool, report.tools))
    lines = ["", report.model, report.prompt.format_sizes()]
    lines.append(f"{len(report.tools)} tools: {len(tools):,} chars more")
    if report.servers:
        lines.append(
            f"not counted: the tools of {', '.join(report.servers)}, which start with a run"
        )
    return "\n".join(lines)


def _format_tool(tool: ToolSpec) -> str:
    schema = msgspec.json.encode(tool.schema).decode()
    return f"## {tool.name}\n{tool.description.strip()}\n{schema}"
