"""The hooks and observers of the coding agent: those of the settings, of a session, and its own.

policy/hooks runs the hooks of the settings; hook_runners.py those that are no commands. Stages of
stages.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from treadle.apps.assembly.checkpoints import TurnCheckpoints
from treadle.apps.assembly.extensions import make_approval_check
from treadle.apps.assembly.lazy import LazyPolicy, LazyWorkspace
from treadle.apps.assembly.parts import AgentParts
from treadle.apps.assembly.redaction import redact, redact_for_display
from treadle.apps.assembly.sessions import get_session_dir
from treadle.core.contracts.observer import BaseObserver
from treadle.core.events import Event, RunFailed, ToolCallBegan, TurnFinished

if TYPE_CHECKING:
    from treadle.policy.hooks import HookConfig, RunHook

HOOKS_SANDBOXED = (
    "this folder is not trusted: your own hooks run in the sandbox if there is one, and see of "
    "your home folder only ~/.treadle/hooks and your tools"
)


def add_observers(parts: AgentParts) -> None:
    parts.observers += [WorkspacePreloader(parts.workspace), GrantEnd(parts.policy)]
    parts.observers += parts.given.observers
    if parts.settings.telemetry:
        from treadle.apps.assembly.telemetry import make_telemetry

        parts.telemetry = make_telemetry()
        parts.observers.append(parts.telemetry.observer)


def add_hooks(parts: AgentParts) -> None:
    """Those of the settings. Hooks of the folder always run in the sandbox if there is one; in an
    untrusted folder those of the user, too, because they may load files of that folder."""
    settings, is_trusted = parts.settings, parts.trust.is_trusted
    if parts.extensions.hooks:
        from treadle.policy.hooks import make_command_hooks

        if not is_trusted and settings.sandbox != "off":
            parts.notes.append(HOOKS_SANDBOXED)
        parts.observers.append(parts.drivers)
        journal = get_session_dir(parts.store) / "journal.jsonl" if parts.store else ""
        parts.hooks += make_command_hooks(
            parts.extensions.hooks,
            parts.workspace.execute,
            parts.folder,
            transcript_path=str(journal),
            get_mode=lambda: parts.policy.mode,
            notify=parts.notify,
            end_turn=lambda session, why: parts.drivers.interrupt(
                session, redact(parts.secrets, why)
            ),
            is_approved=make_approval_check(parts.folder, parts.trust.open_store),
            get_extra_env=lambda hook: _make_environment(parts, hook),
            sandboxed=False if is_trusted and settings.sandbox != "required" else None,
            runners=_make_runners(parts),
        )
    if settings.checkers:
        from treadle.policy.hooks.checkers import Checkers, read_checkers

        parts.hooks.append(Checkers(parts.workspace, read_checkers(settings.checkers)))


def _make_environment(parts: AgentParts, hook: HookConfig) -> Mapping[str, str]:
    from treadle.apps.assembly.hook_environment import make_hook_environment

    return {} if hook.is_project else make_hook_environment(hook.command, parts.folder)


def _make_runners(parts: AgentParts) -> Mapping[str, RunHook]:
    """What runs the hooks that are no commands."""
    if all(one.kind == "command" for one in parts.extensions.hooks):
        return {}
    from treadle.apps.assembly.hook_runners import make_runners

    return make_runners(parts.wrap_model(parts.small_model or parts.model), parts.make_model)


def add_session_hooks(parts: AgentParts) -> None:
    """What the options of a session add: a goal, checkpoints, a schema of the answer."""
    options = parts.options
    if options is None or parts.store is None:
        return
    if options.until:
        from treadle.policy.goal import Goal

        goal = Goal(
            options.until,
            parts.workspace,
            max_attempts=parts.settings.goal_attempts,
            report=lambda text: parts.notify(redact_for_display(text)),
        )
        parts.gates.append(goal)
        parts.hooks.append(goal)
    if options.checkpoints or (options.checkpoints is None and not parts.is_interactive):
        checkpoints = TurnCheckpoints(parts.folder, parts.store, parts.notify)
        parts.hooks.append(checkpoints.hook)
        parts.mutators.append(checkpoints)
        parts.observers.append(checkpoints)
    if options.output_schema is not None:
        from treadle.agents.structured_output import StructuredOutput

        parts.structured_output = StructuredOutput(options.output_schema, parts.model)


class WorkspacePreloader(BaseObserver):
    """Opens the workspace while the model still writes its first call."""

    def __init__(self, workspace: LazyWorkspace) -> None:
        self._workspace = workspace

    def on_event(self, event: Event) -> None:
        if type(event) is ToolCallBegan:
            self._workspace.preload()


class GrantEnd(BaseObserver):
    """Ends with the turn what a custom command allowed."""

    def __init__(self, policy: LazyPolicy) -> None:
        self._policy = policy

    def on_event(self, event: Event) -> None:
        if type(event) in (TurnFinished, RunFailed):
            self._policy.grant(())
