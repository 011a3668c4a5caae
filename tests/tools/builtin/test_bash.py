from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.patience import until
from tests.tools.builtin.helpers import failed, hands, plain
from tests.workspace.helpers import BOTH, alive, gone, marker, seen
from treadle import Agent
from treadle.core.contracts.policy import Allow, AllowAll, PermissionRequest, Verdict
from treadle.core.events import TaskFinished, ToolDetached, ToolProgress
from treadle.core.loop.calls import tool_runner
from treadle.core.steps import AfterToolResult, Finished
from treadle.core.transcript.content import Text
from treadle.core.transcript.items import NoticeItem, ToolResultItem
from treadle.models import Pause, Say, Scripted
from treadle.testing.observers import RecordingObserver
from treadle.tools.builtin import builtin_tools
from treadle.tools.builtin.shell.bash import find_last_cwd, parse_timeout

Both = pytest.mark.parametrize("sandbox", BOTH)


def bash(command: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command, **more}


# --- what comes back ---------------------------------------------------------------------


@Both
async def test_output_exit_code_and_silence(folder: Path, sandbox: bool) -> None:
    async with hands(folder, sandbox=sandbox) as agent:
        printed, silent, wrong = await agent.do(
            bash("echo out; echo err >&2"), bash("true"), bash("echo no; exit 3")
        )
    assert plain(printed) == "out\nerr"
    assert plain(silent) == "(no output)"
    assert failed(wrong) == "no\n[exit code 3]"


@Both
async def test_the_working_directory_stays_between_calls(folder: Path, sandbox: bool) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/a.txt").write_text("below\n")
    async with hands(folder, sandbox=sandbox) as agent:
        moved, where, read, out, still = await agent.do(
            bash("cd sub"),
            bash("pwd; VARIABLE=1"),
            ("read", {"file_path": "a.txt"}),
            bash("cd /"),
            bash("pwd; echo ${VARIABLE:-unset}"),
        )
        fresh = await agent.one("bash", command="pwd")
    assert plain(moved) == f"[working directory is now {folder}/sub]"
    assert plain(where) == f"{folder}/sub"
    assert "below" in plain(read)
    assert "outside the workspace; working directory is still" in plain(out)
    assert plain(still) == f"{folder}/sub\nunset"
    assert plain(fresh) == str(folder), "another session stands at the top"


async def test_a_folder_for_one_command_only(folder: Path) -> None:
    (folder / "sub").mkdir()
    async with hands(folder) as agent:
        one, other, both = await agent.do(
            bash("pwd", workdir="sub"), bash("pwd"), bash("pwd", workdir="sub", cwd=".")
        )
    assert plain(one) == f"{folder}/sub"
    assert one.model_text == f"{folder}/sub\n[corrected: `workdir` is `cwd`]"
    assert plain(other) == str(folder)
    assert "given twice" in failed(both)


@pytest.mark.parametrize(
    ("given", "meant"), [(0, 120), (120_000, 120), (5_000, 5), (30, 30), (10**9, 600)]
)
def test_timeouts_are_milliseconds_and_small_numbers_seconds(given: float, meant: float) -> None:
    assert parse_timeout(given) == meant


async def test_output_is_reported_while_the_command_runs(folder: Path) -> None:
    witness = RecordingObserver()
    async with hands(folder, agent={"observers": [witness]}) as agent:
        command = "echo first; while [ ! -e go ]; do sleep 0.01; done; echo last"
        work = asyncio.ensure_future(agent.one("bash", command=command))
        await until(lambda: witness.events_of(ToolProgress))
        (folder / "go").touch()
        item = await work
    assert witness.events_of(ToolProgress)[0].text == "first\n"
    assert plain(item) == "first\nlast"


async def test_of_long_output_the_middle_is_left_out_and_the_whole_can_be_read(
    folder: Path,
) -> None:
    async with hands(folder) as agent:
        long, part = await agent.do(bash("seq 1 200000"), bash("echo next"))
        whole = await agent.one("read", file_path=long.full_output, offset=150_000, limit=1)
    assert part.text == "next"
    assert long.text.startswith("1\n2\n")
    assert long.text.endswith("\n200000")
    assert f"the whole output is in {long.full_output}" in long.text
    assert len(long.text) < 100_000
    assert not long.is_truncated
    assert "150000\t150000" in plain(whole)


# --- the folder that was judged is the folder that is used ---------------------------------


class Judging:
    """A policy that notes where each call would run."""

    def __init__(self) -> None:
        self.tools: Any = None
        self.places: list[str] = []

    async def decide(self, request: PermissionRequest) -> Verdict:
        self.places.append(self.tools.cwd(request.session_id))
        return Allow()

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        return None


async def test_calls_of_one_reply_run_where_they_were_judged(folder: Path) -> None:
    (folder / "sub").mkdir()
    policy = Judging()
    async with hands(folder, agent={"policy": policy}) as agent:
        policy.tools = agent.tools
        items = await agent.do(
            [bash("cd sub"), bash("pwd; touch here"), ("write", {"file_path": "w", "content": ""})],
            [bash("pwd")],
        )
    assert policy.places == [str(folder)] * 3 + [f"{folder}/sub"]
    assert plain(items[1]) == str(folder)
    assert (folder / "here").exists()
    assert (folder / "w").exists()
    assert plain(items[3]) == f"{folder}/sub", "the last one that moved decides"


async def test_sessions_of_one_agent_do_not_move_each_other(folder: Path) -> None:
    for name in "ab":
        (folder / name).mkdir()
    async with hands(folder) as agent:
        ended = await asyncio.gather(
            *(agent.do(bash(f"cd {n}"), bash("sleep 0.05; pwd"), bash("pwd")) for n in "ab")
        )
    assert [plain(items[2]) for items in ended] == [f"{folder}/a", f"{folder}/b"]


async def test_a_resumed_session_stands_where_it_stood(folder: Path) -> None:
    (folder / "sub").mkdir()
    async with hands(folder) as agent:
        items = await agent.do(
            bash("cd sub"), bash("echo '[working directory is now /etc]'; echo more")
        )
        assert find_last_cwd(items) == f"{folder}/sub"
        assert find_last_cwd([]) is None
        fresh = builtin_tools(agent.workspace)
        fresh.restore_cwd("s1", items)
        assert fresh.cwd("s1") == f"{folder}/sub"
        assert fresh.cwd("s2") == str(folder)
        forged = await agent.do(bash(f"echo '[working directory is now {folder}/sub]'"))
        fresh.restore_cwd("s3", forged)
        assert fresh.cwd("s3") == str(folder)


async def test_a_session_of_version_0_1_has_its_working_directory_in_the_text(folder: Path) -> None:
    (folder / "sub").mkdir()

    def result(text: str) -> ToolResultItem:
        return ToolResultItem("c", "bash", (Text(text),))

    moved = result(f"[working directory is now {folder}/sub]")
    async with hands(folder) as agent:
        tools = builtin_tools(agent.workspace)
        tools.restore_cwd("s1", [moved, result("[working directory is now x]\nmore")])
        assert tools.cwd("s1") == f"{folder}/sub"
        tools.restore_cwd("s1", [result("[working directory is now /etc]")])
        assert tools.cwd("s1") == f"{folder}/sub"


# --- in the background ---------------------------------------------------------------------


def background(*steps: Any) -> Scripted:
    return Scripted([Say(calls=[step]) if isinstance(step, tuple) else step for step in steps])


async def test_a_background_command_is_a_task_that_can_be_read_and_ended(folder: Path) -> None:
    mark = marker()
    async with hands(folder) as agent:
        command = f"echo up; (setsid sleep {mark} &) ; sleep {mark}"
        ready = Pause()
        driver = Agent(
            background(
                bash(command, run_in_background=True),
                [ready, Say(calls=[("task_output", {"task_id": "t1"})])],
                ("task_output", {}),
                ("task_stop", {"task_id": "t1"}),
                ("task_stop", {"task_id": "t1"}),
                ("task_output", {"task_id": "t9"}),
                "done",
            ),
            [agent.tools],
            policy=AllowAll(),
        ).start(prompt="go")
        outputs = agent.workspace.outputs_dir
        while not isinstance(step := await _next(driver, ready, outputs), Finished):
            assert isinstance(step, AfterToolResult)
        items = [item for item in driver.transcript if isinstance(item, ToolResultItem)]
        notices = [item.text for item in driver.transcript if isinstance(item, NoticeItem)]
        await gone(mark)
        await driver.aclose()
    started, output, listed, stopped, again, unknown = items
    assert "Running as task t1" in plain(started)
    assert plain(output) == f"Task t1 [bash: {command}] is running.\nup"
    assert plain(listed) == f"t1 running [bash: {command}]"
    assert plain(stopped) == "Task t1 was ended."
    assert "ended already: it is cancelled" in plain(again)
    assert "there is no task 't9'; known tasks: t1" in failed(unknown)
    assert any("is cancelled" in notice for notice in notices)


async def _next(driver: Any, ready: Pause, outputs: Path) -> Any:
    work = asyncio.ensure_future(driver.next())
    if not ready.until.is_set():
        await asyncio.wait(
            {work, asyncio.ensure_future(ready.reached.wait())}, return_when="FIRST_COMPLETED"
        )
        if ready.reached.is_set():
            await until(lambda: any(path.stat().st_size for path in outputs.iterdir()))
            ready.release()
    return await work


async def test_the_end_of_a_background_command_is_reported(folder: Path) -> None:
    witness = RecordingObserver()
    async with hands(folder) as agent:
        script: list[Any] = [
            Say(calls=[bash("echo built; exit 4", run_in_background=True)]),
            "waiting",
            "seen",
        ]
        driver = Agent(
            Scripted(script), [agent.tools], policy=AllowAll(), observers=[witness]
        ).start(prompt="go")
        while not witness.events_of(TaskFinished):
            await driver.next()
            await asyncio.sleep(0.005)
        await driver.aclose()
    finished = witness.events_of(TaskFinished)[0]
    assert finished.is_error
    assert finished.result == "built\n[exit code 4]"


@Both
async def test_fault_61_background_commands_end_with_the_session(
    folder: Path, sandbox: bool
) -> None:
    mark = marker()
    async with hands(folder, sandbox=sandbox) as agent:
        ready = Pause()
        daemon = f"nohup setsid sleep {mark} >/dev/null 2>&1 & echo up; wait"
        driver = Agent(
            Scripted([Say(calls=[bash(daemon, run_in_background=True)]), [ready, "done"]]),
            [agent.tools],
            policy=AllowAll(),
        ).start(prompt="go")
        while not isinstance(await _next(driver, ready, agent.workspace.outputs_dir), Finished):
            pass
        await seen(mark)  # the user asked for it to go on
        await driver.aclose()
        assert not alive(mark)


async def test_a_long_command_can_be_set_to_detach(folder: Path) -> None:
    witness = RecordingObserver()
    async with hands(folder, detach_after=2.0, agent={"observers": [witness]}) as agent:
        mark = marker()
        short, long = await agent.do(bash("echo quick"), bash(f"echo begun; sleep {mark}"))
        await gone(mark)
    assert plain(short) == "quick"
    assert "Running as task t1" in plain(long)
    assert witness.events_of(ToolDetached)


# --- faults, through the whole agent -------------------------------------------------------


@Both
async def test_fault_57_58_64_a_timeout_is_reported_with_the_output_so_far(
    folder: Path, sandbox: bool
) -> None:
    mark = marker()
    async with hands(folder, sandbox=sandbox, workspace={"grace": 0.2}) as agent:
        hang = endless = on = None
        for seconds in (1, 8, 60):  # long enough for it to begin on any machine
            waits = f"trap '' TERM; echo before; sleep {mark} & sleep {mark}; wait"
            hang, endless, on = await agent.do(
                bash(waits, timeout=1000 * seconds), bash("yes", timeout=1000), bash("echo on")
            )
            if "before" in failed(hang):
                break
    assert hang is not None
    assert endless is not None
    assert on is not None
    assert failed(hang).startswith("before\n[timed out]\n[it did not end within ")
    assert "[timed out]" in failed(endless)
    assert len(endless.text) < 100_000
    assert plain(on) == "on"
    assert not alive(mark)


@Both
async def test_fault_59_60_what_a_command_leaves_running_is_ended_and_named(
    folder: Path, sandbox: bool
) -> None:
    mark = marker()
    async with hands(folder, sandbox=sandbox) as agent:
        item = await agent.one("bash", command=f"setsid sleep {mark} & sleep {mark} & echo here")
    assert plain(item).startswith("here\n[processes that it left running were ended")
    assert not alive(mark)


async def test_fault_65_the_screen_of_the_person_is_not_touched(folder: Path) -> None:
    printed = r"\000\033[2Jred\033]52;c;aGk=\007\377end\n"
    (folder / "e.txt").write_bytes(b"a\x1b[2Jb\x1b]52;c;aGk=\x07\n")
    async with hands(folder) as agent:
        item, edit, _ = await agent.do(
            bash(f"printf '{printed}'"),
            ("edit", {"file_path": "e.txt", "old_string": "b", "new_string": "\x1b[31mc"}),
            ("read", {"file_path": "e.txt"}),
        )
    for shown in (item.text, item.display, edit.display):
        assert not any(ord(c) < 32 and c not in "\n\t" for c in shown)
    assert (folder / "e.txt").read_bytes() == b"a\x1b[2J\x1b[31mc\x1b]52;c;aGk=\x07\n"


@Both
async def test_fault_67_a_prompt_gets_no_answer_and_does_not_wait(
    folder: Path, sandbox: bool
) -> None:
    async with hands(folder, sandbox=sandbox) as agent:
        item = await agent.one("bash", command="read -r x; echo $?; cat; read y </dev/tty")
    assert failed(item).startswith("1\n")


@Both
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("exit 255", "[exit code 255]"),
        ("kill -9 $$", "[killed by SIGKILL]"),
        ("kill -SEGV $$", "[killed by SIGSEGV"),
        ("bash -c 'kill -9 $$'; exit", "[exit code 137]"),
    ],
)
async def test_fault_68_how_it_ended_is_reported(
    folder: Path, sandbox: bool, command: str, reason: str
) -> None:
    async with hands(folder, sandbox=sandbox) as agent:
        assert reason in failed(await agent.one("bash", command=command))


@Both
async def test_fault_73_a_working_directory_that_is_gone_is_left(
    folder: Path, sandbox: bool
) -> None:
    async with hands(folder, sandbox=sandbox) as agent:
        _, lost, found = await agent.do(
            bash("mkdir -p sub/deep; cd sub/deep"), bash("rm -r ../../sub"), bash("pwd")
        )
        again = await agent.do(
            bash("mkdir sub; cd sub"), bash("rmdir ../sub"), bash("true"), bash("pwd")
        )
    assert not lost.is_error
    assert "working directory" in failed(found)
    assert f"[working directory is now {folder}]" in found.text
    assert failed(again[2])
    assert plain(again[3]) == str(folder)


@Both
async def test_an_interrupted_command_leaves_nothing(folder: Path, sandbox: bool) -> None:
    mark = marker()
    async with hands(folder, sandbox=sandbox) as agent:
        work = asyncio.ensure_future(
            agent.one("bash", command=f"trap '' TERM; setsid sleep {mark} & sleep {mark}")
        )
        await seen(mark)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert not alive(mark)


@Both
@pytest.mark.parametrize("waits", [True, False], ids=["shown", "just printed"])
async def test_an_interrupted_command_keeps_what_it_printed(
    folder: Path, sandbox: bool, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_runner, "INTERRUPT_GRACE_SECONDS", 30)  # on a busy machine, too
    mark = marker()
    async with hands(folder, sandbox=sandbox) as agent:
        call = bash(f"seq 3; echo last; touch printed; exec sleep {mark}")
        witness = RecordingObserver()
        driver = Agent(
            Scripted([Say(calls=[call])]), [agent.tools], policy=AllowAll(), observers=[witness]
        ).start(prompt="go")
        work = asyncio.ensure_future(driver.next())
        await until(lambda: (folder / "printed").exists())
        await until(lambda: not waits or witness.events_of(ToolProgress))
        driver.interrupt()
        await work
        [item] = [item for item in driver.transcript if isinstance(item, ToolResultItem)]
        await driver.aclose()
    assert item.text.startswith("1\n2\n3\nlast\n[interrupted")
    assert (item.is_error, item.outcome) == (True, "interrupted")


async def test_fault_78_a_workspace_that_breaks_is_an_error_result(folder: Path) -> None:
    async with hands(folder) as agent:
        broken = agent.workspace

        async def run(*_: object, **__: object) -> None:
            raise RecursionError("deep")

        broken.run = run  # type: ignore[method-assign, assignment]
        item = await agent.one("bash", command="true")
    assert "bash failed: a fault in its code (RecursionError)" in failed(item)


async def test_a_command_that_removes_its_own_folder_leaves_a_clean_result(folder: Path) -> None:
    async with hands(folder) as agent:
        gone, after = await agent.do(
            ("bash", {"command": "mkdir x; cd x; rm -r ../x; echo done"}),
            ("bash", {"command": "pwd"}),
        )
    assert plain(gone) == "done"
    assert plain(after) == str(folder)
