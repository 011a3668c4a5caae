"""Slash commands that change how a session works: model, mode, goal, limits, settings, rules."""

from __future__ import annotations

import asyncio

from treadle.apps.conversation.approval_text import find_coverage
from treadle.apps.conversation.block_text import format_table
from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.answers import CommandAnswer, Question, ScreenChange
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.session.session_limits import format_limits, parse_budget
from treadle.apps.conversation.session.session_permissions import MODE_DESCRIPTIONS, describe_mode
from treadle.apps.settings import rule_changes
from treadle.apps.settings.kept_memory import run_memory_action
from treadle.apps.settings.output_styles import (
    DEFAULT_STYLE,
    describe_missing_style,
    find_output_styles,
    find_style,
)
from treadle.apps.settings.settings import SETTINGS_BY_NAME
from treadle.core.errors import TreadleError
from treadle.lib.text.sanitize import strip_escapes

GOAL_OFF = "off"
_NO_GOAL = """\
no goal is set. A goal is a command that must succeed before a turn ends:
/goal pytest -q   sets one: the agent works until the tests pass
/goal off         removes it"""


async def run_model(session: HostedSession, arguments: str) -> CommandAnswer:
    if arguments:
        await session.model.change(arguments)
        return CommandAnswer()
    current = session.model.card.name
    return CommandAnswer(
        question=Question(
            f"Model (now {current})",
            [ChoiceOption(name, name, card) for name, card in session.model.list_names()],
            lambda name: run_model(session, name),
            current=current,
            is_filterable=True,
        )
    )


async def run_mode(session: HostedSession, arguments: str) -> CommandAnswer:
    if arguments:
        session.permissions.change_mode(arguments)
        return CommandAnswer()
    current, modes = session.permissions.mode, session.permissions.modes
    return CommandAnswer(
        question=Question(
            f"Permission mode (now {current})",
            [ChoiceOption(mode, mode, MODE_DESCRIPTIONS.get(mode, "")) for mode in modes],
            lambda mode: run_mode(session, mode),
            current=current,
        )
    )


async def run_goal(session: HostedSession, arguments: str) -> CommandAnswer:
    goal = session.limits.goal
    if not arguments:
        usage = f"/goal COMMAND changes it, /goal {GOAL_OFF} removes it"
        current = f"goal: every turn continues until this succeeds: {goal}\n{usage}"
        return CommandAnswer(current if goal else _NO_GOAL)
    goal = "" if arguments in (GOAL_OFF, "clear", "none") else arguments
    await session.limits.change_goal(goal)
    done = f"goal set: every turn continues until this succeeds: {goal}"
    return CommandAnswer(done if goal else "there is no goal any more")


async def run_budget(session: HostedSession, arguments: str) -> CommandAnswer:
    if arguments:
        await session.limits.change(*parse_budget(arguments))
    screen = None if arguments else ScreenChange("limits")
    return CommandAnswer(format_limits(session.limits.list_limits()), screen=screen)


async def run_config(session: HostedSession, arguments: str) -> CommandAnswer:
    if not arguments:
        rows = [
            (f"{name} = {value}", origin)
            for name, value, origin in session.settings.list_settings()
        ]
        screen = ScreenChange("settings")
        return CommandAnswer(format_table(rows), is_table=True, screen=screen)
    if len(arguments.split()) == 1:
        return CommandAnswer(session.settings.describe(arguments))
    screen = ScreenChange("changed-settings")
    return CommandAnswer(await session.settings.change(arguments), screen=screen)


async def run_permissions(session: HostedSession, arguments: str) -> CommandAnswer:
    if arguments:
        session.require_idle("/permissions add and remove")
        change = rule_changes.parse_rule_change(arguments)
        is_allow = change.action == "add" and change.name == "allow"
        # Before it is in force: then it would cover nothing more.
        coverage = await find_coverage([change.rule], session.folder) if is_allow else ""
        changed = rule_changes.change_rules(session.folder, change)
        await session.reconfigure()
        done = rule_changes.describe_rule_change(session.folder, change, changed)
        covered = f"\nit would have covered {coverage}" if coverage and changed else ""
        return CommandAnswer(done + covered)
    loaded = await asyncio.to_thread(session.permissions.load_rules)
    applied = loaded.get_rules()
    parts = (("deny", applied.deny), ("ask", applied.ask), ("allow", applied.allow))
    rows = [(f"{verb} {rule.text}", str(rule.origin)) for verb, part in parts for rule in part]
    listed = format_table(rows) if rows else "there are no rules"
    usage = "/permissions add RULE and /permissions remove RULE change them"
    heading = f"mode {describe_mode(session.permissions.mode)}"
    note, screen = f"{heading}\n{listed}\n{usage}", ScreenChange("permissions")
    return CommandAnswer(note, is_table=True, screen=screen)


async def run_theme(session: HostedSession, arguments: str) -> CommandAnswer:
    names = SETTINGS_BY_NAME["theme"].choices
    if not arguments:
        options = [ChoiceOption(name, name) for name in names]
        question = Question("Theme", options, lambda name: run_theme(session, name))
        return CommandAnswer(question=question)
    if arguments not in names:
        unknown = f"unknown theme {arguments!r}; the themes are {', '.join(names)}"
        return CommandAnswer(unknown, "warning")
    saved = session.settings.save("theme", arguments)
    return CommandAnswer(
        f"theme {arguments}: {saved}", "faint", screen=ScreenChange("theme", arguments)
    )


async def run_output_style(session: HostedSession, arguments: str) -> CommandAnswer:
    """Choose how the agent speaks; saved for later sessions, too."""
    styles, problems = find_output_styles(session.folder, trusted=session.trust.is_given)
    if not arguments:
        options = [ChoiceOption(DEFAULT_STYLE, DEFAULT_STYLE, "the agent's own way")]
        options += [ChoiceOption(name, name, one.summary) for name, one in styles.items()]
        current = session.load_settings().output_style or DEFAULT_STYLE
        question = Question(
            "Output style",
            options,
            lambda name: run_output_style(session, name),
            message="\n".join(problems),
            current=current,
        )
        return CommandAnswer(question=question)
    style = find_style(arguments, styles)
    if style is None and arguments != DEFAULT_STYLE:
        return CommandAnswer(describe_missing_style(arguments, styles), "warning")
    name = style.name if style is not None else DEFAULT_STYLE
    return CommandAnswer(await session.settings.change(f"output_style {name}"))


async def run_remember(session: HostedSession, arguments: str) -> CommandAnswer:
    from treadle.context.memory import append_memory, choose_memory_file

    if not arguments:
        return CommandAnswer("usage: /remember TEXT", "warning")
    file = choose_memory_file(session.folder)
    append_memory(file, arguments)
    return CommandAnswer(f"added to {file}")


async def run_memory(session: HostedSession, arguments: str) -> CommandAnswer:
    from treadle.context.memory import choose_memory_file

    text = run_memory_action(session.folder, arguments.split())
    if not arguments:
        text += f"\nyour own notes: {choose_memory_file(session.folder)} (/remember TEXT adds one)"
    return CommandAnswer(text, is_table=True)


async def change_status_line(session: HostedSession, arguments: str) -> CommandAnswer:
    """Show the command of the status line and what it prints, change it, or switch it off."""
    from treadle.apps.conversation.session.status_line import make_status_input, run_status_line

    if arguments:
        return CommandAnswer(await session.settings.change(f"status_line {arguments}"))
    settings = session.agent_session.parts.settings
    lines = [f"status_line = {settings.format('status_line')}"]
    lines[0] += f"   set by: {settings.origin('status_line')}"
    try:
        printed = await run_status_line(session, make_status_input(session))
        shown = "it prints: " + "\n".join(map(strip_escapes, printed))
        lines.append(shown if printed else "the status line is that of the program")
    except (TreadleError, OSError) as error:
        lines.append(f"it fails: {error}")
    lines.append("/statusline COMMAND changes it, /statusline off switches it off")
    return CommandAnswer("\n".join(lines))
