"""The Host over the wiring: a folder, the user's settings, and sessions on disk.

Everything is put together by apps/wiring; this adds what only a person at a terminal needs: trust,
changing the model in the middle, going back with the files. Above: the app and the plain mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec

from treadle.apps import settings as settings_page
from treadle.apps.tui.host import Ability, Ask, Doors, FileChange, SessionLine, TurnLine
from treadle.apps.tui.previewing import preview
from treadle.apps.wiring import Opening, Wired, extras, wire
from treadle.apps.wiring.discretion import own_secrets, without
from treadle.apps.wiring.doubts import Doubts
from treadle.apps.wiring.rules import (
    is_declined,
    is_trusted,
    load_rules,
    project_rules,
    trust_file,
)
from treadle.core.contracts.model import ModelCard
from treadle.core.contracts.workspace import Completed
from treadle.core.errors import ConfigError, StoreError
from treadle.core.loop.driver import Driver
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.entries import Told
from treadle.policy.modes import Mode
from treadle.sessions import travel
from treadle.sessions.journal import Journal
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from treadle.tools.builtin import Question
    from treadle.workspace.checkpoints.checkpoints import Checkpoints
    from treadle.workspace.checkpoints.restoring import Restored

OFFERED: tuple[Mode, ...] = ("ask", "accept-edits", "auto", "plan")


class WiredHost:
    """Implements host.Host. `flags` are settings by name, as a command line gives them."""

    can: frozenset[Ability] = frozenset(get_args(Ability))

    def __init__(
        self,
        folder: Path,
        flags: Mapping[str, object] | None = None,
        opening: Opening | None = None,
    ) -> None:
        self.folder = folder.resolve()
        self.notes: tuple[str, ...] = ()
        self._flags = dict(flags or {})
        self._opening = opening or Opening()
        self._library = Library()
        self._wired: Wired | None = None
        self._driver: Driver | None = None
        self._doors: Doors | None = None
        self._mode: str | None = None
        self._goal = self._opening.until
        self._checkpoints: Checkpoints | None = None
        self._undone: list[tuple[str, str]] = []

    def added(self) -> tuple[Path, ...]:
        names = self._settings().add_dir
        return tuple(Path(self.folder, one).expanduser() for one in names)

    def _settings(self) -> settings_page.Settings:
        return settings_page.load(self.folder, self._flags, trusted=lambda: is_trusted(self.folder))

    # --- trust ---------------------------------------------------------------------------

    @property
    def is_trusted(self) -> bool:
        return is_trusted(self.folder)

    @property
    def is_declined(self) -> bool:
        return is_declined(self.folder)

    def trust(self) -> None:
        from treadle.policy.trust import TrustStore

        store = TrustStore(trust_file())
        store.trust(self.folder)
        store.accept_rules(self.folder, project_rules(self.folder))

    def decline(self) -> None:
        from treadle.policy.trust import TrustStore

        TrustStore(trust_file()).decline(self.folder)

    def brings(self) -> list[str]:
        return extras.brings(self.folder)

    def waiting(self) -> list[str]:
        return [line for one in extras.brought(self.folder).waiting for line in one.lines]

    def approve(self) -> None:
        extras.approve(self.folder)

    # --- the session ---------------------------------------------------------------------

    async def open(self, doors: Doors, *, resume: str | None = None, fork: bool = False) -> Driver:
        await self.aclose()
        self._doors = doors
        if fork and resume:
            journal, _ = travel.fork(self._library, self._library.find(resume), folder=self.folder)
            journal.append(Told(f"a fork of {resume}"))  # an empty log would not be kept
            resume = journal.session_id
            await journal.aclose()
        settings = self._settings()
        opening = msgspec.structs.replace(
            self._opening, interactive=True, resume=resume, until=self._goal, keep_files=True
        )
        wired = await wire(settings, self.folder, opening, approve=doors.approve, tell=doors.tell)
        self._wired = self._equipped(wired, doors)
        if self._mode is not None:
            self.change_mode(self._mode)
        self.notes = self._wired.notes
        self._driver = self._wired.start()
        if self._wired.view is not None and self._wired.view.intents:
            self._driver.watch(Doubts(self._wired.view, doors.tell))
        self._undone = []
        return self._driver

    def _equipped(self, wired: Wired, doors: Doors) -> Wired:
        """With somebody to ask."""
        from treadle.workspace.checkpoints import Checkpoints

        async def ask(question: Question) -> str | None:
            choices = tuple((one.label, one.description) for one in question.choices)
            return await doors.ask(Ask(question.question, choices))

        self._checkpoints = Checkpoints(self.folder, self._library.checkpoints(self.folder))
        agent = wired.agent.replace(services={**wired.agent.equipment.services, "ask": ask})
        return msgspec.structs.replace(wired, agent=agent)

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            raise StoreError("no session is open")
        return self._driver

    @property
    def _now(self) -> Wired:
        if self._wired is None:
            raise StoreError("no session is open")
        return self._wired

    async def aclose(self) -> None:
        driver, self._driver = self._driver, None
        wired, self._wired = self._wired, None
        try:
            if driver is not None:
                await driver.aclose()
        finally:
            if wired is not None:
                await wired.aclose()

    async def reopen(self) -> Driver:
        assert self._doors is not None, "only an open session is opened again"
        # One in which nothing was said is not on the disk.
        session = self.driver.session_id if len(self.driver.history) else None
        return await self.open(self._doors, resume=session)

    # --- model, mode, goal ---------------------------------------------------------------

    @property
    def model(self) -> ModelCard:
        return self._now.model.card

    def models(self) -> list[tuple[str, str]]:
        from treadle.models.catalog import card_for, known
        from treadle.models.choice import expectation

        return [(name, expectation(card_for(name))) for name in known()]

    async def change_model(self, name: str) -> Driver:
        from treadle.models import names

        aliases = settings_page.load(self.folder, self._flags).aliases
        await names.model(name, aliases=aliases).aclose()  # an unknown one is refused here
        self._flags["model"] = name
        return await self.reopen()

    @property
    def mode(self) -> str:
        return self._now.policy.mode

    @property
    def modes(self) -> tuple[str, ...]:
        given = self._flags.get("permission_mode")
        return (*OFFERED, "bypass") if given == "bypass" else OFFERED

    def change_mode(self, mode: str) -> None:
        if mode not in self.modes:
            raise ConfigError(f"there is no mode {mode!r} here; there are {', '.join(self.modes)}")
        self._mode = mode
        self._now.policy.change_mode(msgspec.convert(mode, Mode))

    async def change_goal(self, command: str) -> Driver:
        self._goal = command
        return await self.reopen()

    # --- looking around ------------------------------------------------------------------

    def sessions(self) -> list[SessionLine]:
        found = self._library.summaries(folder=self.folder, limit=200)
        return [
            SessionLine(one.id, one.title, one.updated, one.turns, self._library.state(one))
            for one in found
            if one.turns
        ]

    def turns(self) -> list[TurnLine]:
        lines: list[TurnLine] = []
        has_files = False
        for mark in reversed(travel.turns(_place(self._now))):
            has_files = has_files or bool(mark.before)
            lines.append(TurnLine(mark.turn_id, mark.number, mark.text, mark.time, has_files))
        return lines[::-1]

    def permissions(self) -> list[tuple[str, str]]:
        rules = load_rules(self.folder, self._opening.allow, self._opening.deny)[0]()
        rows = (("deny", rules.deny), ("ask", rules.ask), ("allow", rules.allow))
        return [(f"{verb} {rule.text}", str(rule.origin)) for verb, part in rows for rule in part]

    def settings(self) -> list[tuple[str, str, str]]:
        now = settings_page.load(self.folder, self._flags, trusted=lambda: is_trusted(self.folder))
        return [
            (one.name, settings_page.shown(getattr(now, one.name)), now.origin(one.name))
            for one in settings_page.TABLE
        ]

    def agents(self) -> list[tuple[str, str]]:
        from treadle.agents.definitions import read_definitions

        folders = [self.folder] if self.is_trusted else []
        found, _ = read_definitions([*folders, Path.home()], home=Path.home())
        return [(one.name, one.description) for one in found]

    def skills(self) -> list[tuple[str, str]]:
        from treadle.tools.skills import find_skills

        found, _ = find_skills(self.folder, Path.home(), trusted=self.is_trusted)
        return [(one.name, one.description) for one in found]

    async def preview(self, call: ToolCall) -> str:
        return preview(call, self.folder)

    # --- going back ----------------------------------------------------------------------

    async def changes(self, turn_id: str) -> list[FileChange]:
        target, checkpoints = self._files_before(turn_id), self._kept_files()
        if not target:
            return []
        now = await checkpoints.take()
        found = await checkpoints.changes(now.tree, target)
        return [FileChange(one.path, one.kind) for one in found]

    def _files_before(self, turn_id: str) -> str:
        """The tree as it was before a turn: what the first one kept that changed something."""
        marks = travel.turns(_place(self._now))
        ids = [mark.turn_id for mark in marks]
        if turn_id not in ids:
            raise StoreError(f"there is no turn {turn_id!r} to go back to")
        return next((mark.before for mark in marks[ids.index(turn_id) :] if mark.before), "")

    async def rewind(self, turn_id: str, *, files: bool) -> tuple[Driver, str]:
        session, target, done = self.driver.session_id, self._files_before(turn_id), ""
        if files and target:
            checkpoints = self._kept_files()
            now = await checkpoints.take()
            done = _told(await checkpoints.apply(now.tree, target))
        doors = self._doors
        assert doors is not None, "an open session has doors"
        await self.aclose()
        journal = self._library.resume(session, folder=self.folder).journal
        try:
            await travel.rewind(journal, turn_id)
        finally:
            await journal.aclose()
        return await self.open(doors, resume=session), done

    async def undo(self) -> str:
        marks = [m for m in travel.turns(_place(self._now)) if m.before and m.after]
        done = set(self._undone)
        left = [m for m in marks if m.before != m.after and (m.before, m.after) not in done]
        if not left:
            raise StoreError("there is nothing to take back: no turn of this session changed files")
        last = left[-1]
        restored = await self._kept_files().apply(last.after, last.before)
        self._undone.append((last.before, last.after))
        return f"turn {last.number} taken back: {_told(restored)}"

    async def redo(self) -> str:
        if not self._undone:
            raise StoreError("there is nothing to bring back")
        before, after = self._undone.pop()
        return f"brought back: {_told(await self._kept_files().apply(before, after))}"

    def _kept_files(self) -> Checkpoints:
        assert self._checkpoints is not None, "an open session has checkpoints"
        return self._checkpoints

    # --- small services ------------------------------------------------------------------

    async def shell(self, command: str, on_output: Callable[[str], None]) -> Completed:
        done = await self._now.workspace.run(command, on_output=on_output, confined=False)
        return msgspec.structs.replace(done, output=without(own_secrets(), done.output))

    async def remember(self, text: str) -> str:
        from treadle.context.memory import remember

        file = self.folder / "AGENTS.md"
        remember(file, text)
        return str(file)

    def keep_theme(self, name: str) -> str:
        from treadle.apps.wiring.keeping import keep

        file = keep("theme", name)
        now = settings_page.load(self.folder)
        but = "" if now.theme == name else f", but {now.origin('theme')} says {now.theme}"
        return f"written into {file}{but}"

    async def export(self, path: str) -> Path:
        from treadle.sessions import export

        place = _place(self._now)
        await self._now.store.flush()
        target = self.folder / (path or f"session-{place.name}.md")
        summary = self._library.summary(place)
        if target.suffix == ".html":
            from treadle.sessions.page import page

            text = page(summary, export.blocks(place))
        elif target.suffix == ".json":
            target.write_bytes(export.as_json(summary, place))
            return target
        else:
            text = export.markdown(summary, export.blocks(place))
        target.write_text(text, encoding="utf-8")
        return target


def _place(wired: Wired) -> Path:
    assert isinstance(wired.store, Journal), "sessions of the wiring are journals"
    return wired.store.place


def _told(restored: Restored) -> str:
    parts = []
    if restored.written:
        parts.append(f"{len(restored.written)} written")
    if restored.removed:
        parts.append(f"{len(restored.removed)} removed")
    parts += [f"{one.path} left alone ({one.reason})" for one in restored.skipped[:3]]
    return ", ".join(parts) or "nothing had to change"
