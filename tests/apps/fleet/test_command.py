"""The command `treadle fleet` as a person uses it: real processes, a provider on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.apps import program
from tests.apps.fleet.processes import PlayedWorker
from tests.patience import until
from treadle.apps.fleet import commands
from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.sql.sql_database import SqlDatabase
from treadle.apps.fleet.task import FleetTask
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer, ReceivedRequest

WRITE = FakeCall("write", {"file_path": "answer.txt", "content": "42\n"})


def pick_reply(request: ReceivedRequest) -> FakeReply:
    """Write the answer, unless the prompt says to be lazy; then say so."""
    messages: Any = request.json["messages"]
    text = json.dumps(messages)
    if len(messages) == 1 and "sleep" in text:
        return FakeReply("I sleep.", calls=(FakeCall("bash", {"command": "sleep 600"}),))
    if len(messages) == 1 and "lazy" not in text:
        return FakeReply("I write it.", calls=(WRITE,))
    return FakeReply("Done.")


class Cli:
    """The program with a store of its own."""

    def __init__(self, server: ProviderServer, folder: Path) -> None:
        self.server = server
        self.store = f"sqlite:{folder / 'fleet.db'}"
        self.folder = folder

    async def __call__(self, command: str, *words: str) -> program.Ran:
        return await program.finish(await self.start(command, *words))

    async def start(self, command: str, *words: str) -> Process:
        return await program.start(
            self.server,
            *("fleet", command, "--store", self.store, *words),
            cwd=self.folder,
            TREADLE_MODEL="anthropic/claude-sonnet-4-5",
            TREADLE_SANDBOX="off",
        )

    async def read_status(self) -> dict[str, Any]:
        """What `status --json` prints; empty while `run` has not made the store."""
        text = (await self("status", "--json")).out
        return json.loads(text) if text else {"approvals": [], "workers": [], "runs": []}

    def write_tasks(self, *tasks: Mapping[str, object] | str) -> str:
        lines = [one if isinstance(one, str) else json.dumps(one) for one in tasks]
        (self.folder / "tasks.jsonl").write_text("\n".join(lines))
        return str(self.folder / "tasks.jsonl")


@asynccontextmanager
async def open_cli(folder: Path) -> AsyncIterator[Cli]:
    async with ProviderServer(pick_reply) as server:
        yield Cli(server, folder)


GOOD = {"id": "good", "prompt": "Write it", "labels": {"kind": "a"}}
LAZY = {"id": "lazy", "prompt": "Be lazy", "labels": {"kind": "b"}}
FLAGS = ("--permission-mode", "accept-edits", "--check", "grep -q 42 answer.txt")


async def test_tasks_run_to_their_end_and_the_report_says_which_passed(tmp_path):
    async with open_cli(tmp_path) as cli:
        tasks = cli.write_tasks(
            GOOD, "{broken", LAZY, {"id": "none", "prompt": "x", "folder": "gone"}
        )
        ran = await cli("run", tasks, *FLAGS)
        assert ran.code == 2, "a line is no task, whatever came of the others"
        assert "line 2: it is not JSON" in ran.err
        assert "good: passed" in ran.err
        assert "lazy: check_failed" in ran.err
        assert "3 runs: 1 done, 2 failed" in ran.out
        assert "pass rate by kind" in ran.out
        assert "gone does not exist" in ran.out

        for command in ("logs", "open"):
            said = (await cli(command, "none")).err
            assert "the run none failed before its session began: " in said
            assert "gone does not exist" in said
        assert "that of" not in ran.out, "the cost of all is known"

        other = cli.write_tasks({**GOOD, "prompt": "Something else"}, {**GOOD, "id": "fine"})
        conflict = await cli("run", other, *FLAGS)
        assert conflict.code == 2, conflict
        assert "other tasks have these ids: 'good' (another prompt)" in conflict.err
        assert "3 of 3 ended" in (await cli("status")).out, "nothing was queued"

        tasks = cli.write_tasks(GOOD, LAZY, {"id": "none", "prompt": "x", "folder": "gone"})
        again = await cli("run", tasks, *FLAGS, "--json")
        assert "3 runs of 3 ended before" in again.err
        report = json.loads(again.out)
        assert {run["id"]: run["passed"] for run in report["runs"]} == {
            "good": True,
            "lazy": False,
            "none": False,
        }
        assert len(cli.server.generation_requests) == 3, "nothing was repeated"


async def test_a_finished_run_can_be_read_reported_opened_replayed_and_forked(tmp_path):
    async with open_cli(tmp_path) as cli:
        assert (await cli("run", cli.write_tasks(GOOD), *FLAGS)).code == 0
        logs = await cli("logs", "good")
        assert "I write it." in logs.out
        assert "good: passed" in logs.out
        assert "·  ·" not in logs.out
        for command in ("cancel", "retry"):
            for words in (("good",), ("--label", "kind=a"), ("--state", "done")):
                refused = await cli(command, *words)
                assert refused.code == 1, refused
                assert "good is done: " in refused.err
        page = await cli("report", "--html", "report.html", "--sessions")
        assert page.code == 0, page
        assert 'href="report_sessions/good.html"' in (tmp_path / "report.html").read_text()
        assert "I write it." in (tmp_path / "report_sessions/good.html").read_text()
        assert json.loads((await cli("report", "--json")).out)["pass_rate"]["passed"] == 1

        opened = await cli("open", "good", "--into", "result")
        assert opened.code == 0, opened
        assert (tmp_path / "result/answer.txt").read_text() == "42\n"
        session = opened.out.splitlines()[1].partition(":")[0]
        assert session == "fleet-good"
        folder = tmp_path / "result"
        replayed = await program.finish(
            await program.start(cli.server, "replay", session, cwd=folder)
        )
        assert replayed.code == 0, replayed
        forked = await program.finish(
            await program.start(cli.server, "sessions", "fork", session, cwd=folder)
        )
        assert forked.code == 0, forked
        continued = await program.finish(
            await program.start(
                cli.server,
                *("-p", "And now?", "--resume", session),
                cwd=folder,
                TREADLE_MODEL="anthropic/claude-sonnet-4-5",
            )
        )
        assert (continued.code, continued.out) == (0, "Done.\n"), continued
        second = await cli("open", "good")
        assert second.code == 0, "a session that is here already stays as it is"
        assert (await cli("open", "good", "--into", "result")).code == 1, "that folder has files"

        assert "no run ended more than 1d ago" in (await cli("prune", "--older-than", "1d")).out
        asked = await cli("prune", "--older-than", "0h")
        assert (asked.code, "good" in asked.out) == (2, True)
        assert "Give --yes" in asked.err
        assert "1 run deleted" in (await cli("prune", "--older-than", "0h", "--yes")).out
        assert "no runs" in (await cli("status")).out
        assert (tmp_path / "result/answer.txt").exists()


async def test_a_run_that_is_retried_with_a_higher_limit_continues(tmp_path):
    async with open_cli(tmp_path) as cli:
        for limit, code in ((0.0001, 5), (0.0001, 5), (1.0, 0)):
            ran = await cli("run", cli.write_tasks({**GOOD, "max_cost": limit}), *FLAGS)
            assert ran.code == code, ran
            assert bool(cli.server.generation_requests) == (code == 0)
            await cli("retry", "good")
        messages = cli.server.generation_requests[0].json["messages"]
        assert "The check" not in json.dumps(messages), "there was no reply to check"


async def test_what_a_run_has_cost_counts_when_it_is_continued(tmp_path):
    async with open_cli(tmp_path) as cli:
        await cli("run", cli.write_tasks({**GOOD, "check": "false"}), *FLAGS)
        [run] = (await cli.read_status())["runs"]
        await cli("retry", "good")
        limited = {**GOOD, "check": "false", "max_cost": run["result"]["cost"]}
        assert (await cli("run", cli.write_tasks(limited), *FLAGS)).code == 5
        [run] = (await cli.read_status())["runs"]
        assert "used before this run" in run["error"], run


async def test_a_call_that_needs_approval_waits_for_fleet_approve(tmp_path):
    async with open_cli(tmp_path) as cli:
        tasks = cli.write_tasks(GOOD, {**GOOD, "id": "other"})
        process = await cli.start("run", tasks, "--check", "test -f answer.txt")
        waiting: list[dict[str, str]] = []
        while len(waiting) < 2:
            waiting = (await cli.read_status())["approvals"]
        listed = await cli("approve")
        assert "write: " in listed.out
        assert "answer.txt" in listed.out
        assert (await cli("approve", "nothing")).code == 2
        assert "approved" in (await cli("approve", "good")).out
        denied = await cli("approve", "other", "--deny", "not this file")
        assert "denied" in denied.out
        ran = await program.finish(process)
        assert ran.code == 5, ran
        assert "good: passed" in ran.err
        assert "other: check_failed" in ran.err
        assert (
            "not this file" in json.dumps(cli.server.requests[-1].json)
            or "not this file" in (await cli("logs", "other")).out
        )
        assert "nothing waits" in (await cli("approve")).out


async def test_submitted_runs_are_worked_on_by_a_worker_that_joins(tmp_path):
    async with open_cli(tmp_path) as cli:
        submitted = await cli("run", cli.write_tasks(GOOD, LAZY), *FLAGS, "--detach")
        assert "2 runs submitted" in submitted.out
        status = await cli("status")
        assert "0 of 2 ended · 2 queued" in status.out
        assert [line.split()[:2] for line in status.out.splitlines()[1:]] == [
            ["good", "queued"],
            ["lazy", "queued"],
            ["engine", "local,"],
        ]
        assert "1 run cancelled" in (await cli("cancel", "lazy")).out
        worker = await cli("worker", "--until-idle")
        assert worker.code == 0, worker
        status = await cli("status")
        assert "good: passed" in status.out
        assert "lazy: cancelled" in status.out
        assert "1 run queued again" in (await cli("retry", "lazy")).out
        assert (await cli("worker", "--until-idle")).code == 0
        assert "check_failed" in (await cli("status", "lazy")).out
        assert "1 run queued again" in (await cli("retry", "--failed", "--label", "kind=b")).out


async def test_ctrl_c_stops_the_workers_and_the_same_command_continues(tmp_path):
    async with open_cli(tmp_path) as cli:
        """No approval is given, so that the run is at work, or waits, when the signal comes."""
        tasks = cli.write_tasks(GOOD)
        process = await cli.start("run", tasks, "--max-turns", "9")
        while "answer" not in (await cli("approve")).out:
            pass
        process.send_signal(signal.SIGINT)
        stopped = await program.finish(process)
        assert stopped.code == 130, stopped
        command = f"treadle fleet run --store {cli.store} {tasks} --max-turns 9"
        assert f"1 run left. To continue: {command}" in stopped.err
        status = await cli.read_status()
        assert status["workers"] == []
        await cli("approve", "--all")
        ran = await cli("run", tasks)
        assert ran.code == 0, ran


async def test_a_small_total_cost_is_spent_and_what_is_left_stays_in_the_queue(tmp_path):
    async with open_cli(tmp_path) as cli:
        tasks = cli.write_tasks(GOOD, LAZY, {**GOOD, "id": "last"})
        ran = await cli("run", tasks, *FLAGS, "--total-cost", "0.00001")
        assert ran.code == 4, ran
        assert "the fleet has spent $0.0" in ran.err
        assert "2 runs stay in the queue" in ran.err or "3 runs stay in the queue" in ran.err
        assert "a larger --total-cost continues them" in ran.err
        assert len(cli.server.generation_requests) == 1


async def test_a_second_ctrl_c_ends_the_workers_and_their_runs_are_queued_at_once(tmp_path):
    async with open_cli(tmp_path) as cli:
        tasks = cli.write_tasks({"id": "long", "prompt": "Do sleep"})
        process = await cli.start("run", tasks, "--permission-mode", "bypass")
        await until(lambda: cli.server.generation_requests)  # another process sends them
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert b"stopping: each run ends its step" in await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        stopped = await program.finish(process)
        assert stopped.code == 130, stopped
        assert "Traceback" not in stopped.err
        status = await cli.read_status()
        assert (status["runs"][0].get("state", "queued"), status["workers"]) == ("queued", [])


async def test_a_worker_that_is_killed_is_replaced(tmp_path):
    async with open_cli(tmp_path) as cli:
        process = await cli.start("run", cli.write_tasks(GOOD), "--check", "test -f answer.txt")
        status: dict[str, Any] = {"approvals": []}
        while not status["approvals"]:
            status = await cli.read_status()
        os.kill(status["workers"][0]["pid"], signal.SIGKILL)
        await cli("approve", "--all")
        ran = await program.finish(process)
        assert ran.code == 0, ran
        assert "good: passed" in ran.err


async def test_a_fleet_is_the_same_on_sqlite_and_postgresql(tmp_path, store):
    async with open_cli(tmp_path) as cli:
        cli.store = store
        ran = await cli("run", cli.write_tasks(GOOD, LAZY), *FLAGS, "--workers", "2")
        assert ran.code == 5, ran
        assert "pass rate: 50.0% (1 of 2" in ran.out
        assert "good: passed" in (await cli("status")).out
        assert (await cli("open", "good", "--into", "result")).code == 0
        assert (tmp_path / "result/answer.txt").read_text() == "42\n"


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """A command in this process: its exit code and what it printed."""
    code = commands.run([*words])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_the_store_is_given_after_the_arguments_and_is_part_of_the_next_commands(tmp_path, capsys):
    name = f"sqlite:{tmp_path}/my fleet.db"
    store, shown = ("--store", name), f"--store '{name}'"
    (tmp_path / "good.jsonl").write_text(json.dumps(GOOD))
    (tmp_path / "bad.jsonl").write_text(json.dumps(GOOD) + "\n{broken")
    good, bad = str(tmp_path / "good.jsonl"), str(tmp_path / "bad.jsonl")

    code, text = call(capsys, "schedule", "add", "nightly", "@daily", good, *store)
    assert (code, f"a worker starts it: treadle fleet worker {shown}" in text) == (0, True), text
    assert "nightly" in call(capsys, "schedule", "list", *store)[1]
    assert call(capsys, "schedule", *store, "remove", "nightly") == (0, "nightly: removed\n")
    code, text = call(capsys, "schedule", "remove", "nightly", *store)
    assert (code, f"`treadle fleet schedule {shown}` lists them" in text) == (2, True), text
    code, text = call(capsys, "schedule", "add", "nightly", "@daily", bad, *store)
    assert (code, "line 2: it is not JSON" in text) == (2, True), text

    code, text = call(capsys, "run", good, "--detach", *store)
    assert (code, f"treadle fleet status {shown} shows them" in text) == (0, True), text
    code, text = call(capsys, "logs", "nothing_like_it", *store)
    assert (code, f"`treadle fleet status {shown}` lists the runs" in text) == (2, True), text


def test_a_run_that_does_not_exist_keeps_the_others_as_they_are_and_this_is_said(tmp_path, capsys):
    store = ("--store", f"sqlite:{tmp_path}/fleet.db")
    (tmp_path / "tasks.jsonl").write_text(json.dumps(GOOD))
    assert call(capsys, "run", str(tmp_path / "tasks.jsonl"), "--detach", *store)[0] == 0
    for command in ("cancel", "retry"):
        code, text = call(capsys, command, "good", "zz", "yy", *store)
        assert (code, "nothing was changed: there is no run 'zz', 'yy'" in text) == (2, True), text
    assert "1 queued" in call(capsys, "status", *store)[1]


def test_a_worker_that_gives_no_sign_of_life_is_named(tmp_path, capsys):
    store, names = f"sqlite:{tmp_path}/fleet.db", ("alive", "silent")

    async def add_workers() -> None:
        database = await open_database(store)
        assert isinstance(database, SqlDatabase)
        await database.submit([FleetTask(id=f"{name}-r", prompt="x") for name in names])
        for name in names:
            worker = PlayedWorker(database, name)
            await worker.registry.beat()
            await worker.claim()
        age = "UPDATE fleet_workers SET heartbeat = heartbeat - 40 WHERE id = 'silent'"
        await database.connection.execute(age)
        await database.aclose()

    asyncio.run(add_workers())
    *_, alive, silent, lost = call(capsys, "status", "--store", store)[1].splitlines()
    assert "cannot write" not in alive
    assert alive.endswith("last heartbeat now")
    assert re.search(r"last heartbeat \d\ds ago \(it is dead, or it cannot write to", silent)
    command = f"treadle fleet worker --store {store}"
    assert lost == f"1 run has lost the worker: silent-r; the next worker continues: {command}"


async def test_a_schedule_is_listed_started_by_a_worker_and_removed(tmp_path):
    async with open_cli(tmp_path) as cli:
        tasks = cli.write_tasks(GOOD)
        added = await cli("schedule", "add", "nightly", "30 4 * * *", tasks)
        assert added.code == 0, added
        assert "nightly: next" in added.out
        assert "nightly  30 4 * * *  next" in (await cli("schedule")).out
        wrong = await cli("schedule", "add", "x", "61 * * * *", tasks)
        assert wrong.code == 2
        assert "minute" in wrong.err
        assert (await cli("schedule", "remove", "nightly")).code == 0
        assert "no schedules" in (await cli("schedule")).out
        assert (await cli("schedule", "remove", "nightly")).code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "missing.jsonl"), "missing.jsonl does not exist"),
        (("run", "x", "--max-cost", "-1"), "options for all tasks: max_cost is -1.0"),
        (("run", "x", "--permission-mode", "no"), "options for all tasks: permission_mode is 'no'"),
        (("logs", "missing"), "there is no run 'missing'"),
        (("cancel",), "name runs, or give --state, --label or --all"),
        (("status", "--label", "x"), "must be NAME=TEXT"),
        (("report", "--sessions"), "--sessions needs --html"),
        (("worker", "--runs-at-once", "0"), "--runs-at-once must be above 0"),
        (("approve", "--deny", "no"), "--deny needs"),
        (("prune", "--older-than", "soon"), "must be a time such as 12h, 30d or 8w"),
    ],
)
async def test_a_wrong_argument_is_named(tmp_path, words, message):
    cli = Cli(ProviderServer([]), tmp_path)
    await (await open_database(cli.store)).aclose()
    ran = await cli(*words)
    assert ran.code == 2, ran
    assert message in ran.err


@pytest.mark.parametrize(
    "words", [("status",), ("report",), ("logs", "x"), ("cancel", "--all"), ("schedule",)]
)
async def test_a_command_that_reads_makes_no_store(tmp_path, words):
    cli = Cli(ProviderServer([]), tmp_path)
    ran = await cli(*words)
    assert ran.code == 2, ran
    assert f"there is no fleet at {cli.store}" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("mysql://x", "use sqlite:PATH or postgresql://"),
        ("sqlite:/proc/no/such/fleet.db", "/proc/no/such/fleet.db"),
    ],
)
async def test_a_database_that_cannot_be_opened_is_named(tmp_path, store, message):
    cli = Cli(ProviderServer([]), tmp_path)
    cli.store = store
    ran = await cli("status")
    assert ran.code not in (0, None)
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_the_password_of_a_database_is_no_argument_of_a_worker():
    from treadle.apps.fleet.store_address import hide_password, split_password

    address = "postgresql://me:p%40ss@host:5432/fleet"
    assert split_password(address) == ("postgresql://me@host:5432/fleet", "p@ss")
    assert split_password("sqlite:x.db") == ("sqlite:x.db", "")
    assert hide_password(address) == "postgresql://me:***@host:5432/fleet"
