"""Slash commands that change settings and rules, or start work: config, permissions, btw, review,
init. What they do is in apps/conversation; commands.py lists them.
"""

from __future__ import annotations

import sys
from functools import partial

from treadle.apps.conversation import change_commands
from treadle.apps.conversation.block_text import format_table
from treadle.apps.conversation.init_prompt import build_init
from treadle.apps.conversation.modes import describe_mode
from treadle.apps.conversation.review import build_review
from treadle.apps.conversation.side_question import ask_aside
from treadle.apps.tui.frontend import Frontend
from treadle.core.errors import ConfigError


async def run_config(ui: Frontend, arguments: str) -> None:
    if not arguments:
        rows = [(f"{name} = {value}", origin) for name, value, origin in ui.host.list_settings()]
        ui.show_message(format_table(rows))
    elif len(arguments.split()) == 1:
        ui.show_message(ui.host.describe_setting(arguments))
    else:
        _require_idle(ui, "/config NAME VALUE")
        reopen = partial(ui.reopen_session, has_notes=False)
        message = await change_commands.change_setting(ui.host, arguments, reopen)
        if message:
            ui.show_message(message)
            ui.apply_settings()


async def run_permissions(ui: Frontend, arguments: str) -> None:
    if arguments:
        _require_idle(ui, "/permissions add and remove")
        reopen = partial(ui.reopen_session, has_notes=False)
        ui.show_message(await change_commands.change_rules(ui.host, arguments, reopen))
        return
    rules = ui.host.list_permissions()
    heading = f"mode {describe_mode(ui.host.mode)}"
    change = "/permissions add RULE and /permissions remove RULE change them"
    listed = format_table(rules) if rules else "there are no rules"
    ui.show_message(f"{heading}\n{listed}\n{change}")


def _require_idle(ui: Frontend, command: str) -> None:
    if ui.conversation.view.is_busy:
        raise ConfigError(f"{command} is not available while a turn runs; interrupt the turn first")


async def run_btw(ui: Frontend, arguments: str) -> None:
    ui.show_hint("asking the side question; esc stops it")
    try:
        answer = await ask_aside(ui.conversation, arguments)
    finally:
        ui.show_hint("")
    if answer.is_stopped:
        ui.show_message(answer.note, "faint")
    else:
        await ui.show_panel(f"btw: {arguments}", answer.text, answer.note)


async def run_review(ui: Frontend, arguments: str) -> None:
    ui.conversation.submit(await build_review(ui.host, arguments))


async def run_tour(ui: Frontend, arguments: str) -> None:
    if not await ui.run_in_terminal(sys.executable, "-I", "-m", "treadle", "tour"):
        ui.show_message("run `treadle tour` in a terminal: it needs the full screen")


async def run_init(ui: Frontend, arguments: str) -> None:
    ui.conversation.submit(build_init(arguments))
