"""The sessions of the server, in the process of the test."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.apps.web.server import MODEL
from treadle.agents.agent import Agent
from treadle.apps.web import live_session
from treadle.apps.web.hub import Hub
from treadle.apps.web.render.session_list import SessionRow, render_session_list
from treadle.core.errors import SessionBusy
from treadle.core.transcript import AssistantItem, Text, UserItem
from treadle.core.transcript.entries import ItemAdded, TurnBegan, TurnEnded
from treadle.sessions import Library
from treadle.sessions.log import lock
from treadle.sessions.log.view_loader import ViewLoader


async def test_what_grows_with_a_session_is_loaded_in_threads_so_that_other_tabs_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    journal = Library().create(tmp_path)
    journal.append(TurnBegan("turn-1"))
    journal.append(ItemAdded(UserItem((Text("question"),))))
    journal.append(ItemAdded(AssistantItem((Text("answer"),))))
    journal.append(TurnEnded("turn-1", "end_turn"))
    await journal.aclose()
    threads: dict[str, threading.Thread] = {}

    def watch(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def run(*args: Any, **options: Any) -> Any:
            threads[name] = threading.current_thread()
            return real(*args, **options)

        monkeypatch.setattr(owner, name, run)

    watch(ViewLoader, "load")
    watch(Agent, "start")
    watch(live_session, "build_view")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    hub = Hub(tmp_path, {"model": MODEL})
    try:
        session = await hub.find(journal.session_id)
        assert len(session.conversation.view.blocks) >= 2
    finally:
        await hub.aclose()
    assert set(threads) == {"load", "start", "build_view"}
    assert threading.current_thread() not in threads.values()


async def test_a_session_that_is_being_opened_holds_up_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    journal = Library().create(tmp_path)
    journal.append(TurnBegan("turn-1"))
    journal.append(ItemAdded(UserItem((Text("question"),))))
    await journal.aclose()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    hub = Hub(tmp_path, {"model": MODEL})
    may_open, real = threading.Event(), ViewLoader.load

    def load(loader: ViewLoader) -> Any:
        may_open.wait(30)
        return real(loader)

    monkeypatch.setattr(ViewLoader, "load", load)
    try:
        first = await hub.create()
        opening = asyncio.create_task(hub.find(journal.session_id))
        second = await hub.create()
        assert await hub.find(first.session_id) is first
        assert second.session_id != first.session_id
        assert not opening.done()
        may_open.set()
        assert await hub.find(journal.session_id) is await opening
    finally:
        may_open.set()
        await hub.aclose()


async def test_a_session_that_no_tab_shows_is_released_and_keeps_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    journal = Library().create(tmp_path)
    journal.append(TurnBegan("turn-1"))
    journal.append(ItemAdded(UserItem((Text("question"),))))
    journal.append(TurnEnded("turn-1", "end_turn"))
    await journal.aclose()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    monkeypatch.setattr(lock, "_program", "")
    lock.set_program_name("treadle web")
    hub = Hub(tmp_path, {"model": MODEL})
    try:
        empty, session = await hub.create(), await hub.find(journal.session_id)
        session.host.change_mode("plan")
        with pytest.raises(SessionBusy):
            Library().resume(journal.session_id, folder=tmp_path)
        assert str(lock.read_lock_holder(journal.session_dir)).startswith("treadle web, pid ")
        leave = session.feed.listen(lambda: None)
        await hub.close_idle(older_than=0)
        assert lock.is_locked(journal.session_dir)  # a tab shows it
        leave()
        await hub.close_idle(older_than=0)
        assert not lock.is_locked(journal.session_dir)
        assert await hub.find(empty.session_id) is empty  # it is not on disk
        again = await hub.find(journal.session_id)
        assert again is not session
        assert again.host.mode == "plan"
    finally:
        await hub.aclose()


def test_a_fork_is_listed_below_its_origin_and_a_stopped_turn_is_called_interrupted():
    def row(name: str, state: str = "done", parent: str = "") -> SessionRow:
        return SessionRow(name, f"Title of {name}", "/folder", 0.0, 0.0, state, parent)

    rows = [row("fork", parent="origin"), row("other", "open"), row("origin", "aborted")]
    html = render_session_list([*rows, row("alone", parent="gone")], "", 1.0)
    order = [html.index(f"Title of {name}") for name in ("origin", "fork", "other", "alone")]
    assert order == sorted(order)
    assert html.count('class="session fork" href="/session/fork"') == 1
    assert html.count('class="session fork"') == 1
    assert "<span>interrupted</span>" in html
    assert "<span>open elsewhere</span>" in html
    circle = render_session_list([row("a", parent="b"), row("b", parent="a")], "", 1.0)
    assert circle.count("Title of") == 2
