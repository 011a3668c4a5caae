"""Agents of runs for the tests. The prompt is the script: one word a round, then "done".

    look            pure            note   irreversible     put    verifiable
    WORD+WORD       calls of one reply
    hang_model      the first model call never ends, the second one answers
    hang_note       leaves its mark, then never ends
    wait            waits for the file `go`, the first time
    die             kills its process, every time     raise   raises an error

Every effect leaves a line in a file of the folder FLEET_MARKS, which survives its process.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from treadle import Agent, ToolContext, Usage, tool
from treadle.apps.fleet.task import FleetTask
from treadle.core.contracts.model import ModelRequest
from treadle.core.contracts.tool import ProbeResult
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.items import AssistantItem
from treadle.models.scripted import Say, Scripted, ScriptElement
from treadle.sessions.queued_store import SessionFence
from treadle.sessions.sqlite_store import SqliteStore

USAGE = Usage(input=10, output=5, requests=1, cost=0.01)


def marks() -> Path:
    folder = Path(os.environ["FLEET_MARKS"])
    folder.mkdir(exist_ok=True)
    return folder


def mark(kind: str, text: str) -> None:
    """One line, in one write: no other process gets between."""
    with (marks() / kind).open("ab", buffering=0) as file:
        file.write(f"{text}\n".encode())


def read_marks(kind: str) -> list[str]:
    file = marks() / kind
    return file.read_text().split("\n")[:-1] if file.exists() else []


def is_first(name: str) -> bool:
    """Whether no process was here before."""
    try:
        os.close(os.open(marks() / f"first-{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


async def wait_for_file(name: str) -> None:
    while not (marks() / name).exists():  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(0.005)


mortal: dict[str, str] = {}  # run -> the moment at which its process dies, once


def maybe_die(run: str, moment: str) -> None:
    if mortal.get(run) == moment and is_first(f"death-{run}"):
        os.kill(os.getpid(), signal.SIGKILL)


async def have_effect(kind: str, run: str, context: ToolContext) -> None:
    seconds = float(os.environ.get("FLEET_TOOL_SECONDS", "0"))
    await asyncio.sleep(seconds / 2)
    maybe_die(run, f"{kind}_before")
    mark(kind, f"{run} {context.call_id}")
    maybe_die(run, f"{kind}_after")
    await asyncio.sleep(seconds / 2)


@tool(effect="pure")
async def look(run: str, context: ToolContext) -> str:
    mark("look", f"{run} {context.call_id}")
    maybe_die(run, "look")
    return "seen"


@tool(effect="irreversible")
async def note(run: str, context: ToolContext) -> str:
    await have_effect("note", run, context)
    return "noted"


@tool(effect="irreversible")
async def hang_note(run: str, context: ToolContext) -> str:
    mark("note", f"{run} {context.call_id}")
    mark("hang_note", run)
    await asyncio.Event().wait()
    return "never"


async def probe_put(
    arguments: Arguments, evidence: dict[str, Any], context: ToolContext
) -> ProbeResult:
    is_done = f"{arguments['run']} {context.call_id}" in read_marks("put")
    return ProbeResult("done" if is_done else "not_done", "the mark")


@tool(effect="verifiable", probe=probe_put)
async def put(run: str, context: ToolContext) -> str:
    await have_effect("put", run, context)
    return "stored"


@tool(effect="pure")
async def wait(run: str) -> str:
    if is_first(f"wait-{run}"):
        mark("waiting", run)
        await wait_for_file("go")
    return "gone"


@tool(effect="pure")
async def die(run: str) -> str:
    mark("died", run)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@tool(name="raise")
async def raise_error(run: str) -> str:
    raise RuntimeError("the tool is broken")


@tool(approval=True, effect="irreversible")
async def ask(run: str, context: ToolContext) -> str:
    mark("note", f"{run} {context.call_id}")
    return "approved and done"


TOOLS = (look, note, hang_note, put, wait, die, raise_error, ask)


def make_agent(task: FleetTask, folder: Path) -> Agent:
    words = task.prompt.split()

    async def reply(request: ModelRequest) -> ScriptElement:
        rounds = sum(isinstance(item, AssistantItem) for item in request.transcript)
        mark("model", f"{task.id} {rounds}")
        await asyncio.sleep(float(os.environ.get("FLEET_MODEL_SECONDS", "0")))
        maybe_die(task.id, "model")
        word = words[rounds] if rounds < len(words) else ""
        if word == "hang_model":
            if is_first(f"model-{task.id}"):
                mark("hang_model", task.id)
                await asyncio.Event().wait()
            word = "look"
        if not word:
            return Say(f"done {task.id}", usage=USAGE)
        return Say(calls=[(name, {"run": task.id}) for name in word.split("+")], usage=USAGE)

    return Agent(Scripted(reply), [*TOOLS], approve=lambda approval: False)


def make_mortal_agent(task: FleetTask, folder: Path) -> Agent:
    """The same; the label `dies` names the moment at which its worker dies, the first time."""
    mortal[task.id] = task.labels.get("dies", "")
    if mortal[task.id] == "write":
        die_in_a_write(task.id)
    return make_agent(task, folder)


def die_in_a_write(run: str) -> None:
    """The next transaction on the SQLite file is not completed: its process is killed in it."""
    check = SqliteStore._check_fence

    def check_and_die(self: SqliteStore, database: Connection, fence: SessionFence) -> None:
        check(self, database, fence)
        maybe_die(run, "write")

    SqliteStore._check_fence = check_and_die  # type: ignore[method-assign]
