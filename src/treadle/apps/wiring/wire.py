"""From settings and a folder to an agent that can work there: the door for the hosts.

What the agent consists of is put together on the bench (bench.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.agents.agent import Agent, Approver
from treadle.apps.settings import Settings, home
from treadle.apps.wiring.bench import Bench, Place, Reins
from treadle.apps.wiring.discretion import own_secrets
from treadle.apps.wiring.late import LatePolicy, LateWorkspace
from treadle.apps.wiring.rules import is_trusted, keep_rules, load_rules
from treadle.apps.wiring.sessions import open_session, outputs_of
from treadle.context.prompt import Prompt
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import Model
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.store import Store
from treadle.core.errors import ConfigError
from treadle.core.loop.driver import Driver
from treadle.core.loop.steps import Said
from treadle.core.transcript.entries import View
from treadle.policy.budgets import Purse

if TYPE_CHECKING:
    from treadle.agents.structured import FinalAnswer
    from treadle.tools.mcp.server import McpServer
    from treadle.workspace.local import Options

# The most characters that a token stands for in ordinary text.
CHARS_PER_TOKEN = 5


class Opening(msgspec.Struct, frozen=True):
    """What a host asks for beside the settings.

    `resume` is a session's id, "" for the last one here, or None for a new one. `until` is a
    command that has to succeed before a turn may end, `schema` one that the answer has to fit.
    `chars` are said at once: more than the model can take is refused before anything begins.
    With `park`, what would take too long or cost too much raises Postponed (parking.py) instead.
    `keep_files` takes checkpoints around turns; left open, an interactive host does so itself.
    """

    interactive: bool = False
    resume: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    until: str = ""
    schema: dict[str, Any] | None = None
    chars: int = 0
    park: bool = False
    keep_files: bool | None = None


class Wired(msgspec.Struct, frozen=True):
    """An agent that can work, with all that its host needs of the parts.

    `prompt` is what the model is told first. `notes` are lines for the person: the model and what
    to expect, what waits for an approval, what a resumed session lost. `servers` say by themselves
    how they are.
    """

    agent: Agent
    workspace: LateWorkspace
    policy: LatePolicy
    store: Store
    view: View | None
    prompt: Prompt
    notes: tuple[str, ...]
    purse: Purse | None = None
    answer: FinalAnswer | None = None
    servers: tuple[McpServer, ...] = ()
    reins: Reins = msgspec.field(default_factory=Reins)
    helper: Model | None = None

    @property
    def model(self) -> Model:
        return self.agent.equipment.model

    def start(self, said: Said | None = None) -> Driver:
        """The session's driver; close it before this."""
        driver = self.agent.start(input=said, view=self.view, store=self.store)
        self.reins.driver = driver
        return driver

    async def aclose(self) -> None:
        """Close the model, the tools' servers and the workspace; the store is the driver's."""
        try:
            await self.agent.aclose()
        finally:
            if self.helper is not None:
                await self.helper.aclose()
            await self.workspace.aclose()


async def wire(
    settings: Settings,
    folder: Path,
    opening: Opening | None = None,
    *,
    approve: Approver | None = None,
    hooks: Sequence[Hook] = (),
    observers: Sequence[Observer] = (),
    tell: Callable[[str], None] | None = None,
) -> Wired:
    """Put an agent together. Wrong settings, rules and models are told here, before any work.

    Without `approve`, a call that needs a person is denied in words that the model can read.
    `tell` hears what becomes known only later, a line for the person each.
    """
    opening = opening or Opening()
    folder = folder.resolve()  # noqa: ASYNC240 - before there is anything to block
    notes = list(settings.notes)
    rules, waiting = load_rules(folder, opening.allow, opening.deny)
    notes += waiting
    model, line = await choose_model(settings)
    notes.insert(0, line)
    helper = _helper(settings)
    _check_length(opening.chars, model)
    store, view, told = open_session(opening.resume, folder)
    notes += told
    outputs = outputs_of(store)
    workspace = LateWorkspace(folder, lambda: _workspace_options(settings, folder, outputs), tell)
    try:
        if settings.sandbox == "required":
            await workspace.opened()  # refused now, and not half-way through the work
        policy = LatePolicy(
            workspace,
            rules,
            mode=settings.permission_mode,
            interactive=approve is not None,
            added=settings.add_dir,
            keep=keep_rules(folder),
        )
        place = Place(
            settings=settings,
            folder=folder,
            model=model,
            helper=helper,
            workspace=workspace,
            policy=policy,
            store=store,
            view=view,
            notes=notes,
            tell=tell,
            trusted=is_trusted(folder),
        )
        return _put_together(place, opening, approve, hooks, observers)
    except BaseException:
        await workspace.aclose()
        await store.aclose()
        raise


def _put_together(
    place: Place,
    opening: Opening,
    approve: Approver | None,
    hooks: Sequence[Hook],
    observers: Sequence[Observer],
) -> Wired:
    bench = Bench(place, interactive=opening.interactive, park=opening.park)
    bench.hooks += hooks
    bench.observers += observers
    bench.plug_in()
    bench.instruct()
    bench.remind()
    if opening.until:
        bench.aim_at(opening.until)
    keeps_files = not opening.interactive if opening.keep_files is None else opening.keep_files
    if keeps_files:
        bench.keep_files()
    if opening.schema is not None:
        bench.hold_to(opening.schema)
    return Wired(
        agent=bench.agent(approve),
        workspace=place.workspace,
        policy=place.policy,
        store=place.store,
        view=place.view,
        prompt=bench.prompt,
        notes=tuple(place.notes),
        purse=bench.purse,
        answer=bench.answer,
        servers=bench.servers,
        reins=bench.reins,
        helper=place.helper,
    )


async def choose_model(settings: Settings) -> tuple[Model, str]:
    """The model that is named, or else the one that can be used here; and a line about it."""
    from treadle.models import names

    if settings.model:
        from treadle.models.choice import expectation

        model = names.model(settings.model, aliases=settings.aliases)
        return model, f"{model.name} ({settings.origin('model')}): {expectation(model.card)}"
    from treadle.models.choice import choose

    choice = await choose()
    return names.model(choice.model, aliases=settings.aliases), choice.line


def _helper(settings: Settings) -> Model | None:
    if not settings.small_model:
        return None
    from treadle.models import names

    return names.model(settings.small_model, aliases=settings.aliases)


def _workspace_options(settings: Settings, folder: Path, outputs: Path) -> Options:
    from treadle.workspace.local import Options

    own = (home() / "skills", home() / "hooks")
    return Options(
        added=tuple(Path(folder, one).expanduser() for one in settings.add_dir),
        readable=tuple(place for place in own if place.is_dir()),
        sandbox=settings.sandbox,
        network=settings.network,
        outputs=outputs,
        secrets=own_secrets(),
    )


def _check_length(chars: int, model: Model) -> None:
    if chars > model.card.window * CHARS_PER_TOKEN:
        raise ConfigError(
            f"the prompt is too long: {chars:,} characters, and {model.name} takes about "
            f"{model.card.window:,} tokens. Put it into a file and name the file in the prompt"
        )
