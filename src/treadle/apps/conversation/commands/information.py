"""Slash commands that show something: cost, context, changes, plans, tasks, skills, servers."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.conversation.block_text import TODO_SIGNS, format_table
from treadle.apps.conversation.commands.answers import CommandAnswer, ScreenChange
from treadle.apps.conversation.context_usage import (
    ContextUsage,
    estimate_head,
    format_context_usage,
    measure_context,
)
from treadle.apps.conversation.plans import find_accepted_plan
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.state.blocks import strip_brackets
from treadle.core.errors import ConfigError
from treadle.lib.child_process import start_child
from treadle.lib.text.text import format_cost, format_count, format_dollars

if TYPE_CHECKING:
    from treadle.sessions.forecast import Forecast


async def run_cost(session: HostedSession, arguments: str) -> CommandAnswer:
    from treadle.apps.conversation.costs import describe_thinking, list_purposes
    from treadle.models.catalog import compute_thinking_cost

    usage, forecast = session.driver.total_usage, await _make_forecast(session, "")
    thinking = describe_thinking(usage, compute_thinking_cost(session.model.card.name, usage))
    rows = [
        ("input tokens", f"{usage.input:,}"),
        ("read from cache", f"{usage.cache_read:,}"),
        ("written to cache", f"{usage.cache_write:,}"),
        ("output tokens", f"{usage.output:,}{thinking}"),
        ("requests", f"{usage.requests:,}"),
        ("cost", format_cost(usage.cost, usage.known_cost)),
        *[(f"  {purpose}", cost) for purpose, cost in list_purposes(session.driver.session_id)],
        *([("a message here", str(forecast))] if forecast.cost is not None else []),
    ]
    return CommandAnswer(format_table(rows), is_table=True)


async def run_forecast(session: HostedSession, arguments: str) -> CommandAnswer:
    if not arguments.strip():
        raise ConfigError("usage: /forecast TEXT: the message that you would send")
    return CommandAnswer(str(await _make_forecast(session, arguments)))


async def _make_forecast(session: HostedSession, message: str) -> Forecast:
    from treadle.sessions.forecast import make_forecast

    model = session.agent_session.model.name
    return await asyncio.to_thread(make_forecast, session.library, message, session.folder, model)


def measure_session(session: HostedSession) -> ContextUsage:
    """Of an open session, with what stands before its messages."""
    tokens = session.require_conversation().view.context_tokens
    agent = session.agent_session
    head = estimate_head(agent.prompt.sections, agent.agent.config.source.tools())
    return measure_context(session.driver.transcript, tokens, session.model.card.window, head)


async def run_context(session: HostedSession, arguments: str) -> CommandAnswer:
    note, screen = format_context_usage(measure_session(session)), ScreenChange("context")
    return CommandAnswer(note, is_table=True, screen=screen)


async def run_diff(session: HostedSession, arguments: str) -> CommandAnswer:
    from treadle.apps.conversation.commands.change_review import SCOPES, build_review, find_review

    scopes = {str(scope): scope for scope in SCOPES}
    if arguments and arguments not in scopes:
        return CommandAnswer(f"/diff {'|'.join(scopes)}: which changes are shown", "warning")
    if arguments:
        review = await build_review(session, scopes[arguments])
    else:
        review = await find_review(session)
    if not review.files:
        return CommandAnswer("no changes since the last commit" if not arguments else "no changes")
    note = f"{review.title}\n\n{review.format_text()}"
    return CommandAnswer(note, is_table=True, screen=ScreenChange("review", review.scope))


async def run_plan(session: HostedSession, arguments: str) -> CommandAnswer:
    plan = find_accepted_plan(session.driver.history)
    none = "no plan was accepted in this session; /mode plan begins one"
    return CommandAnswer(redact_for_display(plan) or none, is_markdown=bool(plan))


async def run_todo(session: HostedSession, arguments: str) -> CommandAnswer:
    todos = session.require_conversation().view.todos
    lines = [f"{TODO_SIGNS[todo.status]} {todo.content}" for todo in todos]
    return CommandAnswer("\n".join(lines) or "there is no todo list", is_table=bool(lines))


async def run_tasks(session: HostedSession, arguments: str) -> CommandAnswer:
    tasks = session.driver.tasks
    if arguments:
        is_stopped = await tasks.cancel(arguments)
        unknown = f"no task {arguments!r} is running"
        return CommandAnswer(f"task {arguments} stopped" if is_stopped else unknown)
    rows = [(f"{task.id} {task.state}", strip_brackets(task.summary)) for task in tasks.list()]
    if not rows:
        return CommandAnswer("there are no background tasks")
    return CommandAnswer(f"{format_table(rows)}\n/tasks ID stops a task", is_table=True)


async def run_skills(session: HostedSession, arguments: str) -> CommandAnswer:
    from treadle.apps.settings.extensions import load_skills

    skills, _ = load_skills(session.folder, trusted=session.trust.is_given)
    if not skills:
        return CommandAnswer("there are no skills in .treadle/skills")
    rows = [(skill.name, skill.description) for skill in skills]
    return CommandAnswer(format_table(rows), is_table=True)


async def run_mcp(session: HostedSession, arguments: str) -> CommandAnswer:
    if arguments:
        server = session.servers.find(arguments)
        logs = [f"{log.level} {log.logger} {log.text}" for log in server.logs]
        lines = [server.status.summary, *(logs or ["it has sent no log messages"])]
        return CommandAnswer("\n".join(lines), is_table=True)
    lines = [server.status.summary for server in session.servers.list_servers()]
    note, screen = "\n".join(lines) or "no MCP server is configured", ScreenChange("servers")
    return CommandAnswer(note, is_table=bool(lines), screen=screen)


async def run_doctor(session: HostedSession, arguments: str) -> CommandAnswer:
    # The checks are part of apps/cli, which hosts must not import; so it runs as a program.
    starting = start_child(
        *(sys.executable, "-I", "-m", "treadle", "doctor"),
        cwd=session.folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with starting as process:
        output, _ = await process.communicate()
    lines = output.decode(errors="replace").rstrip().splitlines()
    # Its finding about the terminal is about our pipe.
    shown = [line for line in lines if line.split()[1:2] != ["terminal"]]
    return CommandAnswer("\n".join(shown), is_table=True)


USAGE = "usage: /btw QUESTION, answered from the context of this session without a trace in it"


async def run_btw(session: HostedSession, arguments: str) -> CommandAnswer:
    """Also while a turn runs."""
    if not arguments:
        raise ConfigError(USAGE)
    driver = session.driver
    if not len(driver.history):
        raise ConfigError("this session is empty: send the question as a message")
    session.callbacks.show_hint("asking the side question; esc stops it")
    try:
        reply = await driver.ask_aside(arguments)
    finally:
        session.callbacks.show_hint("")
    usage = reply.usage
    tokens = f"{format_count(usage.total_input)} tokens in, {format_count(usage.output)} out"
    cost = f"{format_dollars(usage.cost)}, " if usage.cost else ""
    if reply.stop == "aborted":
        known = f"{cost}{tokens}" if usage.total else "its cost is not known"
        return CommandAnswer(f"the side question is stopped: {known}", "faint")
    title, text = f"btw: {arguments}", reply.text.strip()
    note = f"{cost}{tokens}; not part of the conversation"
    panel = ScreenChange("panel", text, title=title, note=note)
    return CommandAnswer(f"{title}\n{text}\n{note}", screen=panel)
