"""`treadle prompt`: the system prompt for this folder, and the size of each section.

Builds an agent as a run would, so the text is exactly the one that is sent; no model is called. The
text goes to stdout, sizes and notes to stderr. Uses the assembly.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import msgspec

from treadle.apps.assembly import SessionOptions, build_agent
from treadle.apps.cli.options import parse_flags
from treadle.apps.console.console import command, get_current_folder, print_error, print_line
from treadle.apps.console.exit_codes import SUCCESS
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.settings import Settings
from treadle.context.prompt import SystemPrompt
from treadle.core.contracts.tool import ToolSpec
from treadle.core.contracts.wrapped import find_innermost
from treadle.lib.text.text import plural
from treadle.sessions.log.journal import Journal

HELP = """\
usage: treadle prompt [--model NAME] [--permission-mode MODE] [-p] [--tools]
                      [--system-prompt TEXT] [--append-system-prompt TEXT]
                      [--output-style NAME]

Prints the system prompt on stdout, and the size of each section on stderr.
  -p, --print    as in a run with -p (the prompt is the same)
  --tools        also print the definitions of the tools"""


class PromptReport(msgspec.Struct, frozen=True):
    """All that a model gets before the first message."""

    model: str
    prompt: SystemPrompt
    tools: tuple[ToolSpec, ...]
    servers: tuple[str, ...]  # not started, so their tools are unknown
    notes: tuple[str, ...]


@command("treadle prompt", HELP)
def run(arguments: list[str]) -> int:
    words = ["--print" if word == "-p" else word for word in arguments]
    valued = (
        *("model", "permission-mode", "system-prompt", "append-system-prompt", "output-style"),
    )
    flags = parse_flags("prompt", words, switches=("tools", "print"), valued=valued)
    folder = get_current_folder()
    values = {name.replace("-", "_"): value for name, value in flags.items() if value}
    settings = load_settings(folder, values, is_trusted=lambda: is_trusted(folder))
    report = asyncio.run(_make_report(settings, folder, is_headless="print" in flags))
    show = print_line if sys.stdout.isatty() else print
    show(report.prompt.text)
    if "tools" in flags:
        for tool in report.tools:
            show(f"\n{_format_tool(tool)}")
    sys.stdout.flush()
    for line in (*report.notes, format_sizes(report)):
        print_error(line)
    return SUCCESS


async def _make_report(settings: Settings, folder: Path, *, is_headless: bool) -> PromptReport:
    session = await build_agent(settings, folder, SessionOptions(interactive=not is_headless))
    try:
        return PromptReport(
            session.model.name,
            session.prompt,
            tuple(
                tool.spec for tool in session.agent.config.source.tools() if not tool.spec.unlisted
            ),
            tuple(server.name for server in session.servers),
            session.notes,
        )
    finally:
        await session.store.aclose()
        journal = find_innermost(session.store)
        if isinstance(journal, Journal):
            shutil.rmtree(journal.session_dir, ignore_errors=True)  # the session is empty
        await session.aclose()


def format_sizes(report: PromptReport) -> str:
    """The size of each section, and of the tools' definitions."""
    tools = "".join(map(_format_tool, report.tools))
    lines = ["", report.model, report.prompt.format_sizes()]
    lines.append(f"{plural(len(report.tools), 'tool')}: {len(tools):,} chars in addition")
    if report.servers:
        names = ", ".join(report.servers)
        lines.append(f"not included: tools of MCP servers, which are not started here: {names}")
    return "\n".join(lines)


def _format_tool(tool: ToolSpec) -> str:
    schema = msgspec.json.encode(tool.schema).decode()
    return f"## {tool.name}\n{tool.description.strip()}\n{schema}"
