"""`/agents`: lists, shows, watches, steers and stops the agents and tasks at work.

The full screen has a view for it (tui/agents_view.py), which stops and steers with the same
functions.
"""

from __future__ import annotations

from treadle.apps.conversation.block_text import format_table, plain_text
from treadle.apps.conversation.child_views import ChildViews, ChildWork
from treadle.apps.conversation.commands.answers import CommandAnswer, ScreenChange
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.core.errors import ConfigError

MAX_SHOWN_CHARS = 4_000  # of an agent that is shown: the end
USAGE = """\
/agents               lists the agents and tasks at work, with their numbers
/agents show N        shows the last lines of one
/agents watch N       prints what it does from now on; /agents watch off ends that
/agents say N TEXT    sends it a message
/agents stop N        stops it"""


async def run_agents(session: HostedSession, arguments: str) -> CommandAnswer:
    children = session.require_conversation().children
    action, _, rest = arguments.partition(" ")
    if not action:
        screen = ScreenChange("agents") if children.list() else None
        return CommandAnswer(_format_agents(children, session), is_table=True, screen=screen)
    if arguments.split() == ["watch", "off"]:
        return CommandAnswer("no agent is watched", screen=ScreenChange("watch"))
    number, _, text = rest.strip().partition(" ")
    if action not in ("show", "watch", "say", "stop") or not number:
        raise ConfigError(f"usage:\n{USAGE}")
    work = _find(children, number)
    match action:
        case "show":
            return CommandAnswer(_format_work(work, children.clock()), is_table=True)
        case "watch":
            note = f"watching {work.number} {work.title}; /agents watch off ends it"
            return CommandAnswer(note, screen=ScreenChange("watch", work.key))
        case "say":
            return CommandAnswer(steer_work(session, work, text))
        case _:
            return CommandAnswer(await stop_work(session, work))


def list_agents(session: HostedSession) -> list[tuple[str, str]]:
    """Those that can be started, each with its description."""
    from treadle.agents.agent_definition import BUILTIN_AGENTS
    from treadle.apps.settings.extensions import load_agents

    agents, _ = load_agents(session.folder, trusted=session.trust.is_given)
    own = {agent.name for agent in agents}
    agents += [agent for agent in BUILTIN_AGENTS if agent.name not in own]
    return [(agent.name, agent.description) for agent in agents]


def steer_work(session: HostedSession, work: ChildWork, text: str) -> str:
    """Send a message to an agent; what became of it."""
    if not work.is_agent or not work.is_running:
        return "only an agent at work takes a message"
    if not text.strip():
        return f"usage: /agents say {work.number} TEXT"
    return "message sent" if steer_agent(session, work.session_id, text) else "it has just ended"


def steer_agent(session: HostedSession, agent_session: str, text: str) -> bool:
    """Send a message to the agent with this session; whether it is at work."""
    driver = session.children.find_driver(agent_session)
    if driver is not None:
        driver.steer(text.strip())
    return driver is not None


async def stop_work(session: HostedSession, work: ChildWork) -> str:
    """Stop an agent or a task; what became of it. The parent gets what an agent has done."""
    if not work.is_running:
        return "it has ended already"
    if not work.is_agent:
        is_stopped = await session.driver.tasks.cancel(work.task_id)
        return "stopped" if is_stopped else "it has just ended"
    return "stopped" if stop_agent(session, work.session_id) else "it has just ended"


def stop_agent(session: HostedSession, agent_session: str) -> bool:
    """Stop the agent with this session; whether it is at work."""
    driver = session.children.find_driver(agent_session)
    if driver is not None:
        driver.interrupt("stopped by the user")
    return driver is not None


def _format_agents(children: ChildViews, session: HostedSession) -> str:
    """Those at work and the last that ended, by number; then those that can be started."""
    now, lines = children.clock(), []
    for one in children.list():
        indent = "  " * one.key.count("/")
        lines.append(f"{indent}{one.number} {one.title}  {one.describe(now)}")
    lines += [USAGE, ""] if lines else ["no agent is at work; these can be started:"]
    return "\n".join([*lines, format_table(list_agents(session))])


def _find(children: ChildViews, number: str) -> ChildWork:
    for work in children.list():
        if str(work.number) == number:
            return work
    raise ConfigError(f"there is no agent or task {number!r} at work; /agents lists them")


def _format_work(work: ChildWork, now: float) -> str:
    text, blocks = "", work.view.blocks
    for index in range(len(blocks) - 1, -1, -1):
        text = f"{plain_text(blocks[index])}\n\n{text}"
        if len(text) > MAX_SHOWN_CHARS:
            text = "…" + text[-MAX_SHOWN_CHARS:]
            break
    return f"{work.number} {work.title}  {work.describe(now)}\n{text}".rstrip()
