"""A run with all three classes of effects, that can be stopped anywhere and taken up again.

Two turns, five replies, nine calls. Whatever has an effect leaves a line behind under its key, so
that an effect that happened twice is seen. Used by the tests beside it and by benchmarks/faults.py.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from treadle.agents.agent import Agent
from treadle.core.contracts.model import ModelRequest
from treadle.core.contracts.tool import (
    Access,
    BaseTool,
    ProbeResult,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.errors import SessionBusy, StoreError
from treadle.core.steps import AwaitingInput
from treadle.core.transcript.content import Arguments, Text
from treadle.core.transcript.entries import EffectClass, Entry
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem, UserItem
from treadle.core.transcript.pending import AskModel, pending
from treadle.core.transcript.transcript import Transcript
from treadle.lib.files.file_system import Files
from treadle.models.anthropic.model import AnthropicCodec
from treadle.models.catalog import card_for
from treadle.models.scripted import Say, Scripted
from treadle.sessions import Journal, resume
from treadle.testing.faulty_files import FaultyFiles
from treadle.testing.provider.dialects.anthropic import FakeAnthropic as StrictProvider
from treadle.testing.provider.dialects.request_checks import ServerLimits

MOST_PAUSES = 20
PROMPTS = ("do it", "and again")
REPLIES = (
    Say("first a look", calls=[("look", {"n": 1}), ("look", {"n": 2})]),
    Say(calls=[("put", {"n": 3})]),
    Say(calls=[("send", {"n": 4})]),
    Say("all kinds", calls=[("look", {"n": 5}), ("put", {"n": 6}), ("send", {"n": 7})]),
    Say("done"),
    Say(calls=[("put", {"n": 8}), ("put", {"n": 9})]),
    Say("done again"),
)


class Marking(BaseTool):
    """A tool that leaves a line in a file, with places before, inside and behind its effect."""

    def __init__(self, name: str, effect: EffectClass, folder: Path, files: FaultyFiles) -> None:
        self._log = folder / f"{name}.log"
        self._files = files
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        self._spec = ToolSpec(name, f"Does {name}.", schema, effect, concurrent=effect != "pure")

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def check(self, arguments: Arguments) -> str | None:
        return None

    def summary(self, arguments: Arguments) -> str:
        return self._spec.name

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return Access(writes=frozenset({self._spec.name}))

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        name = self._spec.name
        self._files.count_call(f"{name}: before")
        if self._spec.effect == "pure":
            return ToolOutput(f"saw {arguments['n']}")
        self._leave(f"{context.idempotency_key}\n")
        self._files.count_call(f"{name}: inside")
        await asyncio.sleep(0)
        self._files.count_call(f"{name}: behind")
        return ToolOutput(f"{name} {arguments['n']}")

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, object]:
        return {"key": context.idempotency_key}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, object], context: ToolContext
    ) -> ProbeResult:
        if evidence["key"] in self.keys():
            return ProbeResult("done", "its line is there")
        return ProbeResult("not_done", "its line is not there")

    def keys(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    def _leave(self, line: str) -> None:
        fd = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, line.encode())
        os.close(fd)


class Noting:
    """A store that notes what was acknowledged: a line in a file, written after the flush."""

    def __init__(self, journal: Journal, known: Sequence[Entry], folder: Path) -> None:
        self._journal = journal
        self._entries = list(known)
        self._path = folder / "acknowledged"

    @property
    def session_id(self) -> str:
        return self._journal.session_id

    def append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._journal.append(entry)

    async def flush(self) -> None:
        count = len(self._entries)
        await self._journal.flush()
        self._path.write_bytes(msgspec.json.encode(self._entries[:count]))

    @property
    def is_empty(self) -> bool:
        return self._journal.is_empty

    @property
    def write_error(self) -> StoreError | None:
        return self._journal.write_error

    async def load(self) -> Sequence[Entry]:
        return await self._journal.load()

    async def aclose(self) -> None:
        await self._journal.aclose()


class Run:
    """The scenario in a folder. Each `go` is what one process does until it is done or dies."""

    def __init__(self, folder: Path, files: FaultyFiles) -> None:
        self.place = folder / "session"
        self._folder = folder
        self._files = files
        self.notes: tuple[str, ...] = ()
        self.pauses = 0

    async def go(self) -> Transcript:
        files, folder = self._files, self._folder
        model = Scripted(_reply)
        tools = [
            Marking("look", "pure", folder, files),
            Marking("put", "verifiable", folder, files),
            Marking("send", "irreversible", folder, files),
        ]
        agent = Agent(model, tools)
        view, known = None, []
        if (self.place / "journal.jsonl").exists():
            resumed = resume(self.place, files=files)
            journal, view, self.notes = resumed.journal, resumed.state, resumed.warnings
            known = list(await journal.load()) + list(journal.unwritten_entries)
        else:
            journal = Journal.create(self.place, files=files)
        driver = agent.start(state=view, store=Noting(journal, known, folder))
        while True:
            try:
                step = await driver.next()
            except StoreError as error:
                # What a host does: it tells the person, waits for room, and goes on.
                self.pauses += 1
                if isinstance(error, SessionBusy) or self.pauses > MOST_PAUSES:
                    raise
                continue
            if isinstance(step, AwaitingInput):
                said = sum(isinstance(item, UserItem) for item in driver.transcript)
                if said == len(PROMPTS):
                    break
                driver.submit(PROMPTS[said])
        await driver.aclose()
        for request in model.requests:
            check_request(request)
        return driver.transcript

    def acknowledged(self) -> list[Entry]:
        path = self._folder / "acknowledged"
        if not path.exists():
            return []
        return msgspec.json.decode(path.read_bytes(), type=list[Entry])

    def effects(self) -> list[str]:
        found: list[str] = []
        for name in ("put", "send"):
            path = self._folder / f"{name}.log"
            found += path.read_text().splitlines() if path.exists() else []
        return found


def _reply(request: ModelRequest) -> Say:
    done = sum(isinstance(item, AssistantItem) for item in request.transcript)
    return REPLIES[done]


_codec = AnthropicCodec("claude-sonnet-4-5", card_for("anthropic/claude-sonnet-4-5"))


def check_request(request: ModelRequest) -> None:
    """I2: what a provider is shown is lawful, and a strict one accepts it."""
    assert find_violations(request.transcript) == []
    assert isinstance(pending(request.transcript), AskModel)
    body = b"".join(_codec.encode_request(request).body)
    assert StrictProvider().check_request(json.loads(body), ServerLimits()) == []


def shape(transcript: Sequence[Item]) -> list[tuple[object, ...]]:
    """What must be the same however often the run was stopped: all but the results' words."""
    return [
        (ToolResultItem, item.call_id, item.name)
        if isinstance(item, ToolResultItem)
        else (type(item), getattr(item, "content", ""))
        for item in transcript
    ]


def check_end(run: Run, transcript: Sequence[Item], whole: Sequence[Item]) -> None:
    """I3, and the same end as a run that nobody stopped."""
    effects = run.effects()
    assert len(effects) == len(set(effects)), f"an effect happened twice: {effects}"
    assert shape(transcript) == shape(whole)
    done = {key.rpartition("/")[2] for key in effects}
    for item in transcript:
        if isinstance(item, ToolResultItem) and item.name != "look":
            text = item.content[0]
            assert isinstance(text, Text)
            if "unknown" in text.text:
                assert item.name == "send", "a verifiable call is never in doubt"
            elif not item.is_error:
                assert item.call_id in done, f"{item.call_id} is said to be done and is not"


def new_run(folder: Path, files: Files | None = None) -> Run:
    folder.mkdir(parents=True)
    return Run(folder, files if isinstance(files, FaultyFiles) else FaultyFiles())
