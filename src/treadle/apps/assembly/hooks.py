"""The hooks and observers of the coding agent: those of the settings, of a session, and its own.

hooks/ runs the hooks of the settings; hook_runners.py those that are no commands. Stages of
stages.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.assembly.lazy import LazyPolicy, LazyWorkspace
from treadle.apps.assembly.parts import AgentParts
from treadle.apps.assembly.redaction import redact, redact_for_display
from treadle.apps.assembly.sessions import LazyCheckpoints, get_session_dir
from treadle.apps.assembly.telemetry_export import SEND_SECONDS, describe_service
from treadle.apps.settings.extensions import make_approval_check
from treadle.core.contracts.observer import BaseObserver
from treadle.core.events import Event, RunFailed, ToolCallBegan, TurnFinished
from treadle.lib.text.lazy_regex import compile_lazily

if TYPE_CHECKING:
    from treadle.hooks.command_hook import RunHook

SEARCH_PATH_VARIABLES = ("PYTHONPATH", "NODE_PATH", "LD_LIBRARY_PATH")
_NODE_LOAD = compile_lazily(
    r"(?:^|\s)(?:-r|--require|--import|--(?:experimental-)?loader)[\s=]+(\S+)"
)
_PYTHON_SCRIPT = compile_lazily(r"\.pyw?(?=[\s'\";|&)]|$)")
HOOKS_SANDBOXED = (
    "this folder is not trusted: your own hooks run in the sandbox if there is one, and see of "
    "your home folder only ~/.treadle/hooks and your tools"
)


def add_observers(parts: AgentParts) -> None:
    parts.observers += [WorkspacePreloader(parts.workspace), GrantEnd(parts.policy)]
    parts.observers += parts.given.observers
    if parts.settings.telemetry:
        _add_telemetry(parts)


def _add_telemetry(parts: AgentParts) -> None:
    """Spans go to the collector of OTEL_EXPORTER_OTLP_ENDPOINT, by OpenTelemetry's exporter and its
    variables. They hold names, counts, times and errors, no content of the conversation."""
    resource = describe_service("TRACES")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from treadle.observe.telemetry import Telemetry

    provider = parts.telemetry = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=SEND_SECONDS)))
    parts.observers.append(Telemetry(provider))


def add_hooks(parts: AgentParts) -> None:
    """Those of the settings. Hooks of the folder always run in the sandbox if there is one; in an
    untrusted folder those of the user, too, because they may load files of that folder."""
    settings, is_trusted = parts.settings, parts.trust.is_trusted
    if parts.extensions.hooks:
        from treadle.hooks.command_hook import CommandHookContext, make_command_hooks

        if not is_trusted and settings.sandbox != "off":
            parts.notes.append(HOOKS_SANDBOXED)
        parts.observers.append(parts.drivers)
        journal = get_session_dir(parts.store) / "journal.jsonl" if parts.store else ""
        context = CommandHookContext(
            parts.workspace.execute,
            parts.folder,
            transcript_path=str(journal),
            get_mode=lambda: parts.policy.mode,
            notify=parts.notify,
            warn=parts.notify if parts.is_interactive else parts.warn,
            end_turn=lambda session, why: parts.drivers.interrupt(
                session, redact(parts.secrets, why)
            ),
            is_approved=make_approval_check(parts.folder, parts.trust.open_store),
            get_extra_env=lambda hook: (
                {}
                if hook.is_project and not hook.plugin_root
                else make_hook_environment(hook.command, parts.folder)
            ),
            sandboxed=False if is_trusted and settings.sandbox != "required" else None,
            runners=_make_runners(parts),
        )
        parts.hooks += make_command_hooks(parts.extensions.hooks, context)
    diagnostics = parts.code_servers if parts.code_servers.is_used else None
    if settings.checkers or diagnostics is not None:
        from treadle.hooks.checkers import Checkers, read_checkers

        checkers = read_checkers(settings.checkers)
        parts.hooks.append(Checkers(parts.workspace, checkers, diagnostics))


def add_judge(parts: AgentParts) -> None:
    """The judge of auto mode, if the settings name its model."""
    name = parts.settings.judge
    if not name:
        return
    from treadle.apps.assembly.judge import FILE_NAME, Judge, make_judge_model

    model = parts.wrap_model(make_judge_model(parts.settings, parts.small_model or parts.model))
    file = get_session_dir(parts.store) / FILE_NAME if parts.store is not None else None
    judge = Judge(model, file, parts.state.transcript if parts.state is not None else ())
    parts.policy.judge = judge
    parts.hooks.append(judge)


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
        from treadle.budgets.goal import Goal

        goal = Goal(
            options.until,
            parts.workspace,
            max_attempts=parts.settings.goal_attempts,
            report=lambda text: parts.notify(redact_for_display(text)),
        )
        parts.gates.append(goal)
        parts.hooks.append(goal)
    if options.checkpoints or (options.checkpoints is None and not parts.is_interactive):
        from treadle.workspace.checkpoints.recorder import CheckpointRecorder

        parts.checkpoints = LazyCheckpoints(parts.folder)
        parts.policy.has_checkpoints = parts.checkpoints.is_possible
        recorder = CheckpointRecorder(parts.checkpoints, parts.store.append, parts.notify)
        parts.record_merge = recorder.record
        parts.hooks.append(recorder.hook)
        parts.mutators.append(recorder.mutator)
        parts.observers.append(recorder)
    if options.output_schema is not None:
        from treadle.agents.structured_output import StructuredOutput

        parts.structured_output = StructuredOutput(options.output_schema, parts.model)


class WorkspacePreloader(BaseObserver):
    """Opens the workspace while the model still writes its first call."""

    kinds = frozenset({ToolCallBegan})

    def __init__(self, workspace: LazyWorkspace) -> None:
        self._workspace = workspace

    def on_event(self, event: Event) -> None:
        self._workspace.preload()


class GrantEnd(BaseObserver):
    """Ends with the turn what a custom command allowed."""

    kinds = frozenset({TurnFinished, RunFailed})

    def __init__(self, policy: LazyPolicy) -> None:
        self._policy = policy

    def on_event(self, event: Event) -> None:
        self._policy.grant(())


# ------------------------------------------------------------------ environment


def make_hook_environment(
    command: str, folder: Path, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Variables to set for a hook, server or other program of the user that runs while the agent
    works in `folder`, so that files of the folder cannot be loaded into it: it runs outside the
    sandbox, and interpreters load modules from the current directory and from search paths."""
    environ = os.environ if environ is None else environ
    variables = {
        name: _drop_entries_inside(environ[name], folder)
        for name in SEARCH_PATH_VARIABLES
        if environ.get(name)
    }
    if "NODE_OPTIONS" in environ and _loads_from_folder(environ["NODE_OPTIONS"], folder):
        variables["NODE_OPTIONS"] = ""
    if not _PYTHON_SCRIPT.search(command):
        # Not for scripts: they are outside the folder, and may import modules next to them.
        variables["PYTHONSAFEPATH"] = "1"
    return variables


def _drop_entries_inside(path: str, folder: Path) -> str:
    """The search path without relative entries and without entries inside the folder."""
    root = Path(os.path.realpath(folder))
    return os.pathsep.join(
        entry
        for entry in path.split(os.pathsep)
        if entry.startswith("/") and not Path(os.path.realpath(entry)).is_relative_to(root)
    )


def _loads_from_folder(options: str, folder: Path) -> bool:
    """Whether options of node make it load what is, or may be, a file of the folder."""
    files = [named.strip("'\"") for named in _NODE_LOAD.findall(options)]
    return any(not _drop_entries_inside(file, folder) for file in files)
