"""What if, from Inspect: `treadle whatif` as a process, one for each session at a time.

The process does it all: the forks, the budget, the check, the table, and what is kept. It ends when
the user has chosen, or with the server; finished variants then stay. Used by application.py; how it
looks is render/trial.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE

import msgspec

from treadle.apps.console.variants import Variant
from treadle.apps.web.render.trial import render_form, render_running, render_table
from treadle.core.errors import ConfigError
from treadle.lib.tasks import cancel_all
from treadle.sessions.history import find_round, find_turn
from treadle.sessions.library import Library


class TrialRequest(msgspec.Struct, frozen=True):
    """The fields of the form. The text is the result of the `call`, or the message of the turn."""

    turn: str
    text: str
    call: str = ""
    models: str = ""
    system: str = ""
    check: str = ""
    max_cost: str = ""
    mode: str = "ask"


class TrialChoice(msgspec.Struct, frozen=True):
    """The number of the variant that is kept, `all` or `none`."""

    keep: str


class Trial:
    """One process. `variants` are there when all have ended; `note` is its last word."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.variants: list[Variant] = []
        self.note = ""
        self.task = asyncio.create_task(self._read())
        self._is_stopping = False

    @property
    def is_over(self) -> bool:
        return self.task.done() and not self._is_stopping

    async def _read(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        problems = asyncio.create_task(self.process.stderr.read())
        if line := await self.process.stdout.readline():
            self.variants = msgspec.json.decode(line, type=list[Variant])
        await self.process.stdout.read()
        self.note = (await problems).decode(errors="replace").strip()
        await self.process.wait()

    async def keep(self, which: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{which}\n".encode())
        self.process.stdin.close()
        await self.task

    async def aclose(self) -> None:
        if not self._is_stopping:  # a second signal would end it before it has cleaned up
            self._is_stopping = True
            if self.process.stdin is not None:
                self.process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
        await self.process.wait()
        await cancel_all([self.task])


class Trials:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._trials: dict[str, Trial] = {}

    def render(self, session_id: str, turn: str, call_id: str, model: str) -> str:
        """What goes on, else the form for a turn or for the result of a call."""
        session_dir = self._library.find(session_id)
        trial = self._trials.get(session_dir.name)
        if trial is not None and not trial.is_over:
            return render_table(trial.variants) if trial.variants else render_running()
        if trial is not None:
            del self._trials[session_dir.name]
            return render_table(trial.variants, trial.note, is_over=True)
        if not call_id:
            found = find_turn(session_dir, turn)
            return render_form(found, found.text, model)
        round_ = find_round(session_dir, call_id)
        [result] = [one for one in round_.results if one.call_id == call_id]
        return render_form(round_.turn, result.text, model, result)

    async def start(self, session_id: str, wanted: TrialRequest) -> None:
        session_dir = self._library.find(session_id)
        trial = self._trials.get(session_dir.name)
        if trial is not None and not trial.is_over:
            raise ConfigError("a trial of this session is at work; end it first")
        words = [f"--turn={wanted.turn}", "--json", "--keep=ask"]
        if wanted.call:
            words.append(f"--result={wanted.call}={wanted.text}")
        elif wanted.text != find_turn(session_dir, wanted.turn).text:
            words.append(f"--prompts={wanted.text}")
        given = {
            "models": wanted.models,
            "check": wanted.check,
            "max-cost": wanted.max_cost,
            "permission-mode": wanted.mode,
            "append-system-prompt": wanted.system,
        }
        words += [f"--{name}={value}" for name, value in given.items() if value.strip()]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-m", "treadle", "whatif", session_dir.name, *words),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=1 << 22,
        )
        self._trials[session_dir.name] = Trial(process)

    async def keep(self, session_id: str, choice: TrialChoice) -> None:
        trial = self._trials.get(self._library.find(session_id).name)
        if trial is None or trial.is_over or not trial.variants:
            raise ConfigError("there is no trial of this session that waits")
        await trial.keep(choice.keep)

    async def stop(self, session_id: str) -> None:
        name = self._library.find(session_id).name
        if (trial := self._trials.get(name)) is not None:
            await trial.aclose()
            self._trials.pop(name, None)

    async def aclose(self) -> None:
        await asyncio.gather(*(trial.aclose() for trial in self._trials.values()))
