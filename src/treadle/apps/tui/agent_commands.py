"""`/agents` with words: list, show, watch, steer and stop the agents and tasks at work.

The full screen has a view for it (agents_view.py), which stops and steers with the same functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.apps.conversation.block_text import plain_text
from treadle.apps.conversation.child_views import ChildViews, ChildWork
from treadle.apps.conversation.host import Host
from treadle.core.errors import ConfigError

if TYPE_CHECKING:
    from treadle.apps.tui.frontend import Frontend

MAX_SHOWN_CHARS = 4_000  # of an agent that is shown: the end
USAGE = """\
/agents               lists the agents and tasks at work, with their numbers
/agents show N        shows the last lines of one
/agents watch N       prints what it does from now on; /agents watch off ends that
/agents say N TEXT    sends it a message
/agents stop N        stops it"""


def format_agents(children: ChildViews, host: Host) -> str:
    """Those at work and the last that ended, by number; then those that can be started."""
    now, lines = children.clock(), []
    for one in children.list():
        indent = "  " * one.key.count("/")
        lines.append(f"{indent}{one.number} {one.title}  {one.describe(now)}")
    lines += [USAGE, ""] if lines else ["no agent is at work; these can be started:"]
    lines += [f"{name:12}  {text}" for name, text in host.list_agents()]
    return "\n".join(lines)


async def run_agents(ui: Frontend, arguments: str) -> None:
    action, _, rest = arguments.partition(" ")
    if not action:
        await ui.show_agents()
        return
    if arguments.split() == ["watch", "off"]:
        ui.show_message(ui.watch_agent(None))
        return
    number, _, text = rest.strip().partition(" ")
    if action not in ("show", "watch", "say", "stop") or not number:
        raise ConfigError(f"usage:\n{USAGE}")
    work = _find(ui.conversation.children, number)
    match action:
        case "show":
            ui.show_message(_format_work(work, ui.conversation.children.clock()))
        case "watch":
            ui.show_message(ui.watch_agent(work))
        case "say":
            ui.show_message(steer_work(ui.host, work, text))
        case _:
            ui.show_message(await stop_work(ui.host, work))


def steer_work(host: Host, work: ChildWork, text: str) -> str:
    """Send a message to an agent; what became of it."""
    if not work.is_agent or not work.is_running:
        return "only an agent at work takes a message"
    if not text.strip():
        return f"usage: /agents say {work.number} TEXT"
    return (
        "message sent" if host.steer_child(work.session_id, text.strip()) else "it has just ended"
    )


async def stop_work(host: Host, work: ChildWork) -> str:
    """Stop an agent or a task; what became of it."""
    if not work.is_running:
        return "it has ended already"
    if work.is_agent:
        is_stopped = host.stop_child(work.session_id)
    else:
        is_stopped = await host.driver.tasks.cancel(work.task_id)
    return "stopped" if is_stopped else "it has just ended"


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
