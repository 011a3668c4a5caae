"""The agents at work: watched live, sent a message, stopped after a question."""

import os

from tests.apps.tui.harness import make_usage, running_app, scripted, write_file
from treadle.apps.conversation.child_views import ChildViews
from treadle.core import events
from treadle.core.contracts.model import ModelRequest
from treadle.core.transcript import ToolResultItem, UserItem
from treadle.models import Pause, Say
from treadle.sessions.library import Library
from treadle.sessions.log.reader import list_segments

IDS = ("s", "t", 0)
BYPASS: dict[str, object] = {"permission_mode": "bypass"}


def in_child(call_id: str, event: events.Event) -> events.ChildEvent:
    return events.ChildEvent(*IDS, call_id, event)


def test_each_child_has_a_view_with_its_activity_time_and_cost():
    now = [10.0]
    children = ChildViews(lambda: now[0])
    children.on_event(events.ToolStarted(*IDS, "c1", "task", "[task: look around]"))
    children.on_event(in_child("c1", events.TurnStarted("child", "t", 0)))
    children.on_event(
        in_child("c1", events.ToolStarted("child", "t", 1, "k1", "grep", "[grep: x]"))
    )
    usage = make_usage(10_000)
    children.on_event(in_child("c1", events.UsageUpdated("child", "t", 2, "m", usage, usage)))
    now[0] += 12
    (work,) = children.list()
    assert (work.title, work.session_id) == ("task: look around", "child")
    assert work.describe(now[0]) == "running grep, 12s, $0.03"
    children.on_event(events.ToolFinished(*IDS, "c1", "task", "done"))
    now[0] += 60
    assert children.list()[0].describe(now[0]) == "ended, 12s, $0.03"


def test_a_child_of_a_child_is_listed_below_it_and_a_command_in_the_background_too():
    children = ChildViews(lambda: 0.0)
    children.on_event(events.ToolStarted(*IDS, "c1", "task", "[task: outer]"))
    children.on_event(
        in_child("c1", events.ToolStarted("child", "t", 0, "k1", "task", "[task: inner]"))
    )
    inner = events.ChildEvent(
        "child", "t", 1, "k1", events.TextDelta("grandchild", "t", 0, "I look.")
    )
    children.on_event(in_child("c1", inner))
    children.on_event(events.ToolStarted(*IDS, "c2", "bash", "[bash: make]"))
    children.on_event(events.ToolDetached(*IDS, "c2", "t1"))
    children.on_event(events.ToolProgress(*IDS, "c2", "compiling\n"))
    titles = {work.key: work.title for work in children.list()}
    assert titles == {"c1": "task: outer", "c1/k1": "task: inner", "c2": "bash: make"}
    command = children.get("c2")
    assert command is not None
    assert not command.is_agent
    children.on_event(events.TurnFinished(*IDS, events.TurnResult("t", "end_turn")))
    assert [work.key for work in children.list() if work.is_running] == ["c2"]
    children.on_event(events.TaskFinished(*IDS, "t1", "bash", "done"))
    assert not [work for work in children.list() if work.is_running]


def test_only_the_last_ones_that_ended_are_kept():
    children = ChildViews(lambda: 0.0)
    for number in range(40):
        children.on_event(events.ToolStarted(*IDS, f"c{number}", "task", f"[task: {number}]"))
        children.on_event(in_child(f"c{number}", events.TextDelta("child", "t", 0, "x")))
        children.on_event(events.ToolFinished(*IDS, f"c{number}", "task", "done"))
    assert len(children.list()) == 8
    assert children.get("c39") is not None


async def test_an_agent_is_watched_steered_and_stopped(monkeypatch):
    pause, second = Pause(), Pause()
    task = {"description": "look around", "prompt": "look", "name": "scout"}
    model = scripted(
        [
            Say(calls=[("task", task)]),
            ["I look into it. ", pause, "More words."],
            [second, "never"],
            "The agent was stopped.",
        ]
    )
    async with running_app(monkeypatch, model, flags=BYPASS) as on:
        await on.send("go")
        await pause.reached.wait()
        await on.press("ctrl+b")
        await on.sees("Agents and tasks at work")
        assert "▸ 1 task" in on.screen()
        assert "agents that can be started" in on.screen()
        await on.press("enter")
        await on.sees("watching task")
        await on.sees("I look into it.")  # the transcript of the child
        assert "› go" not in on.screen()
        await on.press("s")
        await on.sees("Message to task")
        await on.press(*"hurry", "enter")
        await on.sees("watching task")
        pause.release()
        await second.reached.wait()
        messages = [
            item.text for item in model.requests[-1].transcript if isinstance(item, UserItem)
        ]
        assert messages[-1] == "hurry"
        await on.press("x")
        await on.sees("Stop task")
        await on.press("y", "enter")
        await on.sees(" · stopped, ")
        await on.press("escape", "escape")
        await on.sees("The agent was stopped.")
        assert "› go" in on.screen()


def make_background_model(pause: Pause):
    """A model whose agent works in the background; one reply for the user, one for the agent."""
    task = {"description": "look around", "prompt": "look", "run_in_background": True}

    def reply(request: ModelRequest):
        texts = [item.text for item in request.transcript if isinstance(item, UserItem)]
        if texts[0] == "look":
            usage = make_usage(100_000)
            return ["I look.", pause] if len(texts) == 1 else Say("I hurry.", usage=usage)
        is_first = not any(isinstance(item, ToolResultItem) for item in request.transcript)
        usage = make_usage(1_000)
        return Say(calls=[("task", task)], usage=usage) if is_first else Say("Begun.", usage=usage)

    return scripted(reply)


async def test_an_agent_in_the_background_takes_a_message_and_its_cost_counts(monkeypatch):
    pause = Pause()
    model = make_background_model(pause)
    async with running_app(monkeypatch, model, flags=BYPASS) as on:
        await on.send("go")
        await on.sees("Begun.")
        await pause.reached.wait()
        await on.press("ctrl+b")
        await on.sees("Agents and tasks at work")
        await on.press("s")
        await on.sees("Message to task")
        await on.press(*"hurry", "enter")
        await on.sees("message sent")
        await on.press("escape")
        pause.release()
        await on.sees("finished")
        await on.until(lambda: len(model.requests) == 5, "the turn that its report begins")
        await on.idle()
        await on.until(lambda: "$0.3" in on.screen().splitlines()[-1], "the status line")
        await on.send("/cost")
        await on.sees("requests          5")
        session = on.app.session.driver.session_id
    async with running_app(monkeypatch, resume=session) as on:
        await on.send("/cost")
        await on.sees("requests          5")


async def test_an_agent_in_the_background_that_is_stopped_is_told_as_stopped(monkeypatch):
    pause = Pause()
    model = make_background_model(pause)
    async with running_app(monkeypatch, model, flags=BYPASS) as on:
        await on.send("go")
        await on.sees("Begun.")
        await pause.reached.wait()
        await on.press("ctrl+b")
        await on.sees("Agents and tasks at work")
        await on.press("x")
        await on.sees("Stop task")
        await on.press("y", "enter")
        await on.sees("  stopped, ")
        await on.press("escape")
        await on.sees(") was stopped")
        assert "◦ task general: look around  stopped" in on.screen()
        await on.send("and now?")
        await on.until(lambda: len(model.requests) == 4, "the request with the report")
        report = str(list(model.requests[-1].transcript))
        assert "is cancelled." in report
        assert "[stopped before it was done: stopped by the user]" in report
        assert ") finished" not in on.screen()
        await on.idle()
        session = on.app.session.driver.session_id
    async with running_app(monkeypatch, resume=session) as on:
        await on.sees(") was stopped")
        assert "◦ task look around  stopped" in on.screen()
        assert ") finished" not in on.screen()


async def test_the_output_of_a_command_in_the_background_is_shown_while_it_runs(monkeypatch):
    wait = "until [ -e go ]; do sleep 0.05; done"
    command = f"echo first line; {wait}; echo last line; exec sleep 600"
    calls = [
        ("bash", {"command": "exec sleep 600", "run_in_background": True}),
        ("bash", {"command": command, "run_in_background": True}),
    ]
    model = scripted([Say(calls=calls), "Begun.", "It was stopped."])
    async with running_app(monkeypatch, model, flags=BYPASS) as on:
        await on.send("go")
        await on.sees("Begun.")
        await on.press("ctrl+b")
        await on.sees("Agents and tasks at work")
        await on.press("down", "enter")
        await on.sees("watching bash")
        await on.until(lambda: "first line" in on.screen().splitlines()[0])
        write_file("go")
        await on.until(lambda: "last line" in on.screen().splitlines()[1])
        await on.press("escape")
        await on.sees("▸ 2 bash: echo first")  # the cursor is on the watched one
        await on.press("s")
        await on.sees("only an agent at work takes a message")
        await on.sees("▸ 2 bash: echo first")
        await on.press("x")
        await on.sees("Stop bash")
        await on.press("y", "enter")
        await on.sees("stopped")
        await on.sees("▸ 2 bash: echo first")
        await on.press("escape")
        await on.sees("! task t2 (bash: echo first")
        assert ") was stopped" in on.screen().replace("\n", " ")


async def test_a_resumed_session_tells_which_tasks_died_with_their_process(monkeypatch):
    call = ("bash", {"command": "exec sleep 600", "run_in_background": True})
    async with running_app(
        monkeypatch, scripted([Say(calls=[call]), "Begun."]), flags=BYPASS
    ) as on:
        await on.send("go")
        await on.sees("Begun.")
        await on.idle()
        session = on.app.session.driver.session_id
        (log,) = list_segments(Library().find(session))
        size = log.stat().st_size
    os.truncate(log, size)  # what a killed process leaves
    async with running_app(monkeypatch, resume=session) as on:
        await on.sees("! task t1 (bash: exec sleep 600) is lost: the program that ran it ended")
        assert "◌" not in on.screen()


async def test_without_an_agent_at_work_the_kinds_are_listed(monkeypatch):
    async with running_app(monkeypatch) as on:
        await on.send("/agents")
        await on.sees("no agent is at work; these can be started:")
        assert "explore " in on.screen()
