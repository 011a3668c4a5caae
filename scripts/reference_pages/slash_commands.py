"""The page of the slash commands: the table of apps/conversation/commands/table.py."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.reference_pages.markdown import list_codes, make_entry, make_page, make_sentence
from treadle.apps.conversation.commands.table import ALIASES, COMMANDS, EXCEPTIONS, SlashCommand

INTRODUCTION = """\
The commands of a session, in the terminal, the page and editors. `/help` lists those of your host,
with your own commands (Markdown files, skills) and the prompts of MCP servers.
[terminal.md](../terminal.md#commands) explains the larger ones. `treadle -p "/NAME"` runs your own
commands and prompts of servers, not these."""
HOSTS = {
    "plain": "the plain mode",
    "page": "the page",
    "editor": "an editor",
}


def write_page() -> str:
    return make_page("Slash commands", INTRODUCTION, *map(describe, COMMANDS))


def describe(command: SlashCommand) -> str:
    return make_entry(f"/{command.name}", make_sentence(command.summary), list(list_facts(command)))


def list_facts(command: SlashCommand) -> Iterator[str]:
    if command.arguments:
        yield f"arguments: {command.arguments}"
    if others := [alias for alias, name in ALIASES.items() if name == command.name]:
        yield f"also: {list_codes(f'/{one}' for one in others)}"
    if not command.while_busy:
        yield "not while a turn runs"
    for host, missing in EXCEPTIONS.items():
        if command.name in missing:
            yield f"not in {HOSTS[host]}: {missing[command.name]}"
