"""A task of a fleet: what one run has to do, as a value.

A task is one line of a file of tasks (task_files.py). Its id is that of its run: the same id twice
is one run. Without an id, the hash of the content is the id. Knows nothing of the database.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import get_args

import msgspec

from treadle.core.errors import ConfigError
from treadle.lib.text.text import fix_surrogates
from treadle.permissions.modes import PermissionMode

PERMISSION_MODES: tuple[str, ...] = get_args(PermissionMode)
NUMBERS = ("max_cost", "timeout", "cpus", "memory", "gpu")
MAX_ID_LENGTH = 64
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
_IMAGE = re.compile(r"[0-9A-Za-z][^\s]*")
_ID_RULE = (
    f"use 1 to {MAX_ID_LENGTH} letters, digits, '.', '_' and '-', with a letter or digit first"
)


class FleetTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run has to do, and where.

    At most one of `folder`, `repository` and `archive` is given; without any the run begins in an
    empty folder. `commit` is one of the repository. `check` is a command line that decides whether
    the run passed: exit code 0. `max_cost` is in USD. `timeout` is in seconds of work of the agent
    on the run, whichever workers do it; a retry has the time again. `container` is an image: the
    commands and the check run in containers of it. With `batch` the replies of the model come from
    the provider's batch interface: at half the price, within hours. `cpus`, `memory` (GiB) and
    `gpu` are what the run needs of a machine, for an engine that chooses one.
    A wrong value raises ConfigError. `parse_task` checks also the types.
    """

    prompt: str
    id: str = ""
    folder: str | None = None
    repository: str | None = None
    archive: str | None = None
    commit: str | None = None
    model: str | None = None
    max_cost: float | None = None
    max_turns: int | None = None
    permission_mode: str | None = None
    check: str | None = None
    labels: dict[str, str] = {}
    timeout: float | None = None
    container: str | None = None
    cpus: float | None = None
    memory: float | None = None
    gpu: float | None = None
    batch: bool | None = None

    @property
    def resources(self) -> dict[str, float]:
        """As an engine wants them (core/contracts/run_engine.py)."""
        memory = None if self.memory is None else self.memory * (1 << 30)
        found = {"cpus": self.cpus, "memory": memory, "gpus": self.gpu}
        return {name: value for name, value in found.items() if value is not None}

    def __post_init__(self) -> None:
        try:
            problems = _find_problems(self)
        except (TypeError, AttributeError) as error:
            raise ConfigError(f"task {self.id!r}: a field has the wrong type: {error}") from error
        for problem in problems:
            raise ConfigError(f"task {self.id or self.prompt[:40]!r}: {problem}")
        if not self.id:
            msgspec.structs.force_setattr(self, "id", _hash_content(self))


def parse_task(fields: object) -> FleetTask:
    """A task of the fields of a JSON object; ConfigError if one is wrong or not known."""
    if not isinstance(fields, dict):
        raise ConfigError(f"a task is an object with a prompt; this is {type(fields).__name__}")
    unknown = sorted(fields.keys() - set(FleetTask.__struct_fields__))
    if unknown:
        known = ", ".join(FleetTask.__struct_fields__)
        raise ConfigError(f"a task has no field {unknown[0]!r}; it has {known}")
    try:
        return msgspec.convert(fields, FleetTask)
    except msgspec.ValidationError as error:
        cause = error.__cause__ if isinstance(error.__cause__, ConfigError) else None
        raise cause or ConfigError(f"task {fields.get('id', '')!r}: {error}") from error


# Two tasks with one id are the same task if these fields are equal.
_IDENTITY = ("prompt", "folder", "repository", "archive", "commit", "model", "check", "container")
# Of the same task given again, these count from the next time that a worker takes its run.
_CHANGEABLE = ("max_cost", "max_turns", "timeout", "permission_mode", "cpus", "memory", "gpu")
_NAMED_CONFLICTS = 5


def reject_conflicts(pairs: Iterable[tuple[FleetTask, FleetTask]]) -> None:
    """Of pairs with one id, a new task and the known one: ConfigError if they are not the same."""
    conflicts = {
        task.id: next(name for name in _IDENTITY if getattr(task, name) != getattr(known, name))
        for task, known in pairs
        if any(getattr(task, name) != getattr(known, name) for name in _IDENTITY)
    }
    if not conflicts:
        return
    named = [f"{one!r} (another {field})" for one, field in conflicts.items()]
    more = f", and {len(named) - _NAMED_CONFLICTS} more" if len(named) > _NAMED_CONFLICTS else ""
    raise ConfigError(
        "other tasks have these ids: "
        f"{', '.join(named[:_NAMED_CONFLICTS])}{more}; nothing was queued. Use other ids"
    )


def update_limits(known: FleetTask, later: FleetTask) -> FleetTask:
    """The known task with the limits, the mode and the needs that a later one of its id gives."""
    given = {name: getattr(later, name) for name in _CHANGEABLE}
    changes = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(known, **changes)


def _hash_content(task: FleetTask) -> str:
    content = msgspec.json.encode(task, order="deterministic")
    return hashlib.sha256(content).hexdigest()[:16]


def _find_problems(task: FleetTask) -> list[str]:
    problems: list[str] = []
    if not task.prompt.strip():
        problems.append("the prompt is empty; say what the run has to do")
    texts = {name: getattr(task, name) for name in FleetTask.__struct_fields__}
    for name, text in texts.items():
        if isinstance(text, str) and fix_surrogates(text) != text:
            problems.append(f"{name} has half a character (a lone surrogate); write it whole")
    if task.id and (len(task.id) > MAX_ID_LENGTH or not _ID.fullmatch(task.id)):
        problems.append(f"{task.id!r} cannot be an id: {_ID_RULE}")
    sources = [name for name in ("folder", "repository", "archive") if getattr(task, name)]
    if len(sources) > 1:
        problems.append(f"{' and '.join(sources)} are both given; give one of them")
    if task.commit and not task.repository:
        problems.append("a commit is given without a repository; give the repository too")
    problems += [
        f"{name} is {value!r}; it must be a number above 0"
        for name in NUMBERS
        if (value := getattr(task, name)) is not None and not 0 < value < float("inf")
    ]
    if task.max_turns is not None and task.max_turns < 1:
        problems.append(f"max_turns is {task.max_turns!r}; it must be 1 or more")
    if task.container is not None and not _IMAGE.fullmatch(task.container):
        problems.append(f"container is {task.container!r}; it must be an image: NAME or NAME:TAG")
    if task.permission_mode is not None and task.permission_mode not in PERMISSION_MODES:
        modes = ", ".join(PERMISSION_MODES)
        problems.append(f"permission_mode is {task.permission_mode!r}; it must be one of {modes}")
    return problems
