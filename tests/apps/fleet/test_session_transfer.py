"""`treadle send` to the queue of a fleet and back; killed at each step."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apps.fleet.conftest import working
from tests.apps.fleet.processes import ROOT, PlayedWorker, opened, until_state
from tests.apps.program import IMPORTS, Ran, environment, finish, run
from tests.preloaded import start_preloaded
from treadle.apps.console import exit_codes
from treadle.apps.fleet.commands import session_transfer
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.run_record import FleetRun
from treadle.apps.fleet.task import FleetTask
from treadle.core.errors import SessionBusy
from treadle.core.transcript.entries import (
    InputQueued,
    ItemAdded,
    Suspended,
    TurnBegan,
    TurnEnded,
    WakeCondition,
)
from treadle.core.transcript.items import NoticeItem, to_user_item
from treadle.core.transcript.state import SessionState, fold_entries
from treadle.sessions import Library
from treadle.sessions.detached.background import BackgroundChoices, save_choices
from treadle.sessions.history import read_state
from treadle.sessions.log.journal import append_entries, read_entries, read_records
from treadle.sessions.log.lock import SENDING_FILE
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

MORTAL = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    "from tests.apps.fleet.mortal_send import run; sys.exit(run())"
)
FREELY = ("--permission-mode", "bypass", "--sandbox", "off")
SEND_STEPS = (
    *("after mark_sending", "after begin", "after open_log", "in open_log", "after _write_log"),
    *("before _commit", "in _commit", "after _commit", "in remove_sent", "after remove_sent"),
    "after forget",
)
FETCH_STEPS = (
    *("after _make_place", "after begin", "after store_files", "after append_entries"),
    *("before _commit", "in _commit", "after _commit", "after accept", "in finish"),
    *("after finish", "after forget"),
)


async def find_run(database: FleetDatabase) -> FleetRun:
    [run] = await database.runs()
    return run


async def make_fleet(store: str) -> None:
    async with opened(store):
        pass


async def make_session(text: str = "look") -> str:
    """A session whose turn has just begun."""
    journal = Library().create(Path.cwd())
    journal.append(TurnBegan("t1"))
    journal.append(ItemAdded(to_user_item(text)))
    await journal.aclose()
    return journal.session_id


async def send(*words: str, dies: str = "") -> Ran:
    env = environment(None, DIES=dies)
    return await finish(await start_preloaded(IMPORTS, MORTAL, "send", *words, env=env))


def list_here() -> list[Path]:
    """The sessions that can be opened."""
    return [one for one in Library().list_session_dirs() if not (one / SENDING_FILE).exists()]


async def list_owners(store: str) -> list[str]:
    async with opened(store) as database:
        runs = await database.runs()
    return ["here" for _ in list_here()] + ["fleet" for _ in runs]


async def read_fleet_state(store: str, session: str) -> SessionState:
    async with opened(store) as database:
        run = await find_run(database)
        assert run.session == session
        return fold_entries(await database.load_session(run.id))


async def test_a_session_goes_to_a_fleet_and_comes_back(store: str, tmp_path: Path):
    call = FakeCall("write", {"file_path": "a.txt", "content": "one\n"})
    async with ProviderServer([FakeReply(calls=(call,)), FakeReply("It is written.")]) as server:
        assert (await run(server, "-p", "write it", *FREELY)).code == 0
    [session_dir] = Library().list_session_dirs()
    session = session_dir.name
    await append_entries(session_dir, [InputQueued(to_user_item("Go on."), "m1")])
    before, entries = read_state(session_dir), read_entries(session_dir)
    times = [record.time for record, _ in read_records(session_dir)]
    await make_fleet(store)

    sent = await run(None, "send", session, store)
    assert sent.code == 0, sent.err
    assert await list_owners(store) == ["fleet"]
    async with opened(store) as database:
        run_id = (await find_run(database)).id
        assert sent.out.startswith(f"{session} is in the fleet: treadle fleet status {run_id} --st")
        assert (await database.load_session(run_id))[: len(entries)] == entries
        async with working(database):
            done = await until_state(database, run_id, "done")
    opened_copy = await run(None, "fleet", "open", run_id, "--store", store)
    assert opened_copy.code == 0, opened_copy
    assert not session_dir.exists()
    for copy in list_here():
        shutil.rmtree(copy)
    assert done.cost is not None
    assert before.usage.cost is not None
    assert done.cost > before.usage.cost
    nowhere = await run(None, "send", "--from", store, session)
    assert nowhere.code == exit_codes.USAGE_ERROR, nowhere
    assert "Name a new folder for that" in nowhere.err
    files = tmp_path / "from-the-fleet"
    back = await run(None, "send", "--from", store, session, str(files))
    assert (back.code, back.out) == (0, f"{session} is here: treadle attach {session}\n"), back.err

    assert await list_owners(store) == ["here"]
    assert (files / "a.txt").read_text() == "one\n"
    after = read_state(session_dir)
    assert after.turns == before.turns + 1
    assert after.usage.cost == done.cost
    assert [one.item.kind for one in after.queued if isinstance(one.item, NoticeItem)] == ["fleet"]
    notices = [item.text for item in after.transcript if isinstance(item, NoticeItem)]
    assert any(f"is now a copy of {Path.cwd()}" in text for text in notices)
    assert [record.time for record, _ in read_records(session_dir)][: len(times)] == times
    verified = await run(None, "sessions", "verify", session)
    assert verified.code == 0, verified
    undone = await run(None, "undo", "2")
    assert undone.code == 0, undone
    assert not Path("a.txt").exists()


async def test_its_options_go_along_and_what_it_has_spent_counts(store: str):
    async with ProviderServer([FakeReply("Yes.")]) as server:
        assert (await run(server, "-p", "Do you?", *FREELY)).code == 0
    [session_dir] = Library().list_session_dirs()
    await append_entries(session_dir, [InputQueued(to_user_item("Go on."), "m1")])
    cost = read_state(session_dir).usage.cost
    assert cost
    flags = {"model": "anthropic/claude-sonnet-4-5", "permission_mode": "auto", "max_cost": cost}
    os.close(save_choices(session_dir, BackgroundChoices(flags)))
    await make_fleet(store)
    sent = await run(None, "send", session_dir.name, store)
    assert sent.code == 0, sent
    async with opened(store) as database:
        [made] = await database.runs()
    assert (made.task.model, made.task.permission_mode) == (flags["model"], "auto")
    assert (made.task.max_cost, made.task.max_turns) == (cost, 200)
    async with ProviderServer([FakeReply("No.")]) as server:
        await run(server, "fleet", "worker", "--store", store, "--until-idle")
        assert not server.generation_requests
    async with opened(store) as database:
        [ended] = await database.runs()
    assert (ended.state, ended.result and ended.result.cause) == ("failed", "budget_exceeded")
    assert "used before this run" in ended.error


def keep_child(session_dir: Path) -> None:
    (session_dir / "children" / "one").mkdir(parents=True)


def forbid_commands(session_dir: Path) -> None:
    choices = BackgroundChoices({"max_time": "5m"}, deny=("Bash",), until="true")
    os.close(save_choices(session_dir, choices))


async def end_turn(session_dir: Path) -> None:
    await append_entries(session_dir, [TurnEnded("t1", "end_turn")])


async def ask_user(session_dir: Path) -> None:
    entry = Suspended("t1", "question", WakeCondition("answer"))
    await append_entries(session_dir, [entry])


def use_worktree(session_dir: Path) -> None:
    Path(".git").write_text("gitdir: elsewhere\n")


def damage(session_dir: Path) -> None:
    with (session_dir / "journal.jsonl").open("ab") as file:
        file.write(b"x\n")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (keep_child, "has sessions of child agents"),
        (forbid_commands, "a run of a fleet has no --max-time, --deny, --until"),
        (end_turn, "has nothing to do: its last turn is over"),
        (ask_user, "waits for an answer, and a fleet cannot ask"),
        (use_worktree, "works in a worktree of git"),
        (damage, "cannot be read by this version, or is lost"),
    ],
)
async def test_what_cannot_go_to_a_fleet_stays_and_says_why(
    change: Callable[[Path], Awaitable[None] | None], problem: str, own_place: Path
):
    store = f"sqlite:{own_place / 'fleet.db'}"
    session = await make_session()
    missing = await run(None, "send", session, store)
    assert (missing.code, "there is no fleet at" in missing.err) == (2, True), missing
    assert not (own_place / "fleet.db").exists()
    await make_fleet(store)
    if waits := change(Library().find(session)):
        await waits
    refused = await run(None, "send", session, store)
    assert (refused.code, problem in refused.err) == (exit_codes.ERROR, True), refused
    assert await list_owners(store) == ["here"]


async def write_end(worker: PlayedWorker, run: FleetRun) -> None:
    log = await worker.runs.open_session(run)
    log.append(TurnEnded("t1", "end_turn"))
    await log.flush()


async def test_a_fleet_gives_only_a_session_that_was_sent_and_that_no_worker_has(store: str):
    await make_fleet(store)
    unknown = await run(None, "send", "--from", store, "nothing")
    assert unknown.code == exit_codes.SESSION_NOT_FOUND, unknown
    async with opened(store) as database:
        await database.submit([FleetTask(id="own", prompt="look")])
        refused = await run(None, "send", "--from", store, "own")
        assert refused.code == exit_codes.SESSION_NOT_FOUND, refused
        refused = await run(None, "send", "--from", store, "fleet-own")
        assert "`treadle fleet open own` copies it" in refused.err
        await database.cancel(["own"])
        session = await make_session()
        assert (await run(None, "send", session, store)).code == 0
        [taken] = await PlayedWorker(database, "w1").claim()
        busy = await run(None, "send", "--from", store, session)
        assert (busy.code, "a worker has" in busy.err) == (exit_codes.SESSION_BUSY, True), busy
        assert list_here() == []
        assert busy.err.rstrip().endswith(f"treadle fleet cancel {taken.id}")
        await database.cancel([taken.id])
        back = await run(None, "send", "--from", store, session)
        assert back.code == 0, back
        assert [run.id for run in await database.runs()] == ["own"]
        again = await run(None, "send", session, store)
        assert again.code == 0, again
        [retaken] = await PlayedWorker(database, "w2").claim()
        assert retaken.epoch == 1
        with pytest.raises(SessionBusy):  # it was slow, all the time
            await write_end(PlayedWorker(database, "w1"), taken)
        await write_end(PlayedWorker(database, "w2"), retaken)


async def test_a_worker_that_takes_the_run_meanwhile_has_it(
    store: str, monkeypatch: pytest.MonkeyPatch
):
    await make_fleet(store)
    session = await make_session()
    assert (await run(None, "send", session, store)).code == 0
    async with opened(store) as database:

        async def append_and_claim(*arguments: Any) -> None:
            await append_entries(*arguments)
            await PlayedWorker(database, "w1").claim()

        monkeypatch.setattr(session_transfer, "append_entries", append_and_claim)
        with pytest.raises(SessionBusy, match="has changed meanwhile; nothing was moved"):
            await session_transfer.fetch_session(
                store, Library(), session, None, lambda folder, files: None
            )
        assert (await find_run(database)).state == "running"
    assert await list_owners(store) == ["fleet"]
    assert not [*(Library().root.parent / "incoming").iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize("step", SEND_STEPS)
async def test_a_sender_that_is_killed_leaves_the_session_on_one_side(store: str, step: str):
    await make_fleet(store)
    session = await make_session()
    before = read_state(Library().find(session))
    killed = await send(session, store, dies=step)
    assert killed.code == -9, killed
    owners = await list_owners(store)
    assert len(owners) <= 1
    if owners != ["here"]:
        refused = await run(None, "-p", "--resume", session, "Go on.")
        assert refused.code in (exit_codes.SESSION_BUSY, exit_codes.SESSION_NOT_FOUND), refused
    again = await send(session, store)
    assert again.code == 0 or not Library().root.joinpath(session).exists(), again
    assert await list_owners(store) == ["fleet"]
    state = await read_fleet_state(store, session)
    assert state.transcript == before.transcript
    assert [one.item.kind for one in state.queued if isinstance(one.item, NoticeItem)] == ["fleet"]
    back = await send("--from", store, session)
    assert back.code == 0, back
    assert await list_owners(store) == ["here"]
    assert read_state(Library().find(session)).transcript == before.transcript


@pytest.mark.slow
@pytest.mark.parametrize("step", FETCH_STEPS)
async def test_who_fetches_a_session_and_is_killed_has_all_of_it_or_nothing(
    store: str, step: str, tmp_path: Path
):
    await make_fleet(store)
    session = await make_session("look note")
    assert (await send(session, store)).code == 0
    async with opened(store) as database:
        async with working(database):
            await until_state(database, (await find_run(database)).id, "done")
        written = await database.load_session((await find_run(database)).id)
    files = str(tmp_path / "one")
    killed = await send("--from", store, session, files, dies=step)
    assert killed.code == -9, killed
    owners = await list_owners(store)
    assert len(owners) <= 1
    is_undecided = owners == ["fleet"]
    files = str(tmp_path / "two") if is_undecided else files
    again = await send("--from", store, session, files)
    assert again.code == 0 or owners == ["here"], again
    assert await list_owners(store) == ["here"]
    entries = read_entries(Library().find(session))
    assert entries[:-1] == written
    assert isinstance(entries[-1], InputQueued)
    assert Path(files).is_dir()
    assert not [*(Library().root.parent / "incoming").glob("*/fleet")]
