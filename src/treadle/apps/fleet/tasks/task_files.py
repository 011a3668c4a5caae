"""Reads tasks from files: JSON lines, JSON, CSV, or a folder of exercises.

    load_tasks(path) -> LoadedTasks(tasks, problems)

A malformed line is a problem that is named by its number; the others are loaded. Lines may be tasks
of the fleet (task.py) or of the SWE-bench form (swe_bench.py); a folder holds such files, folders
with a task.json, or exercises of the polyglot form (exercises.py). Runs nothing.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from treadle.apps.fleet.task import NUMBERS, FleetTask, parse_task
from treadle.apps.fleet.tasks.exercises import is_exercise, make_exercise_task
from treadle.apps.fleet.tasks.swe_bench import convert_swe_bench, is_swe_bench
from treadle.core.errors import ConfigError

LABEL_PREFIX = "label."  # of a column in a CSV file: `label.language`
TASK_FILE = "task.json"
MAX_FOLDER_DEPTH = 6
MAX_LINE_BYTES = 16 << 20


class TaskProblem(msgspec.Struct, frozen=True):
    """A line or file that is no task. `line` is 0 if the whole file is meant; in a .json file it
    counts the items of the array."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        unit = "item" if self.path.endswith(".json") else "line"
        place = f"{self.path}, {unit} {self.line}" if self.line else self.path
        return f"{place}: {self.message}"


class LoadedTasks(msgspec.Struct, frozen=True):
    """The tasks of a file or folder in their order, and what could not be read."""

    tasks: tuple[FleetTask, ...]
    problems: tuple[TaskProblem, ...] = ()


class TaskDefaults(msgspec.Struct, frozen=True):
    """What a task gets if it does not say it itself. `repositories` is where `owner/name` of a
    SWE-bench line is found: a folder with local copies, or the beginning of a URL."""

    model: str | None = None
    max_cost: float | None = None
    max_turns: int | None = None
    permission_mode: str | None = None
    check: str | None = None
    timeout: float | None = None
    container: str | None = None
    batch: bool | None = None
    repositories: str = ""


# The fields of a task that an option may give to all.
DEFAULT_FIELDS = tuple(name for name in TaskDefaults.__struct_fields__ if name != "repositories")


def load_tasks(path: Path, defaults: TaskDefaults | None = None) -> LoadedTasks:
    """All tasks of a file or folder. ConfigError if there is no such file or it has no known form;
    what is wrong with single lines is in `problems`."""
    loader = _TaskLoader(defaults or TaskDefaults())
    if path.is_dir():
        loader.load_folder(path)
        if not loader.tasks and not loader.problems:
            raise ConfigError(
                f"{path} has no tasks: it needs .jsonl, .json or .csv files, folders with a "
                f"{TASK_FILE}, or exercises (.docs/instructions.md and .meta/config.json)"
            )
    elif not path.exists():
        raise ConfigError(f"{path} does not exist; give a file or folder of tasks")
    else:
        loader.load_file(path)
    return LoadedTasks(tuple(loader.tasks.values()), tuple(loader.problems))


class _TaskLoader:
    """Collects tasks by their ids; the first of two with one id counts."""

    def __init__(self, defaults: TaskDefaults) -> None:
        self._defaults = defaults
        self.tasks: dict[str, FleetTask] = {}
        self._places: dict[str, str] = {}
        self.problems: list[TaskProblem] = []

    def load_file(self, path: Path) -> None:
        read = READERS.get(path.suffix.lower())
        if read is None:
            forms = ", ".join(READERS)
            raise ConfigError(f"{path}: the form {path.suffix!r} is not known; use one of {forms}")
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        for line, record in read(data):
            self._add(path, line, record)

    def load_folder(self, folder: Path, depth: int = 0) -> None:
        task_file = folder / TASK_FILE
        if task_file.is_file():
            self._add_task_folder(folder, task_file)
        elif is_exercise(folder):
            self._try(folder, 0, lambda: make_exercise_task(folder))
        elif depth < MAX_FOLDER_DEPTH:
            for entry in sorted(folder.iterdir()):
                if entry.name.startswith(".") or entry.is_symlink():
                    continue
                if entry.is_dir():
                    self.load_folder(entry, depth + 1)
                elif entry.suffix.lower() in READERS and depth == 0:
                    self.load_file(entry)

    def _add_task_folder(self, folder: Path, task_file: Path) -> None:
        """A task.json works in its own folder, unless it says another place."""
        for _, record in _read_json(task_file.read_bytes()):
            places = ("folder", "repository", "archive")
            if isinstance(record, dict) and not any(record.get(name) for name in places):
                record = {"id": folder.name, **record, "folder": "."}
            self._add(task_file, 0, record)

    def _add(self, path: Path, line: int, record: object) -> None:
        self._try(path, line, lambda: make_task(record, path.parent, self._defaults))

    def _try(self, path: Path, line: int, make: Callable[[], FleetTask]) -> None:
        try:
            task = _apply_defaults(make(), self._defaults)
        except (ConfigError, RecursionError, OSError) as error:
            self.problems.append(TaskProblem(str(path), line, str(error)))
            return
        place = f"line {line} of {path}" if line else str(path)
        if task.id in self.tasks:
            first = self._places[task.id]
            message = f"the id {task.id!r} is that of {first}, too; only that one runs"
            self.problems.append(TaskProblem(str(path), line, message))
            return
        self.tasks[task.id], self._places[task.id] = task, place


def make_task(record: object, base: Path, defaults: TaskDefaults | None = None) -> FleetTask:
    """The task of one record; relative paths in it begin at `base`."""
    if isinstance(record, Unreadable):
        raise ConfigError(record.message)
    if not isinstance(record, dict):
        return parse_task(record)  # it raises
    fields = dict(record)
    if is_swe_bench(fields):
        fields = convert_swe_bench(fields, (defaults or TaskDefaults()).repositories)
    for name in ("folder", "archive", "repository"):
        if fields.get(name):
            fields[name] = _resolve_path(name, fields[name], base)
    return parse_task(fields)


def _resolve_path(name: str, value: object, base: Path) -> object:
    """A path from where the file is; a URL or `host:path` of a repository stays as it is."""
    if not isinstance(value, str):
        return value
    is_remote = name == "repository" and ("://" in value or ":" in value.partition("/")[0])
    return value if is_remote else str((base / Path(value).expanduser()).resolve())


def _apply_defaults(task: FleetTask, defaults: TaskDefaults) -> FleetTask:
    changes = {
        name: getattr(defaults, name)
        for name in DEFAULT_FIELDS
        if getattr(task, name) is None and getattr(defaults, name) is not None
    }
    return msgspec.structs.replace(task, **changes) if changes else task


# --- forms of files ------------------------------------------------------------------------


class Unreadable(msgspec.Struct, frozen=True):
    """In place of a record: why the line cannot be read."""

    message: str


Records = Iterator[tuple[int, object]]  # the number of the line, and what is in it


def _read_json_lines(data: bytes) -> Records:
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.strip():
            yield number, _parse_json(line)


def _read_json(data: bytes) -> Records:
    """One object, or an array of objects; in an array, the number is the place in it."""
    found = _parse_json(data.removeprefix(b"\xef\xbb\xbf"))
    yield from enumerate(found, 1) if isinstance(found, list) else [(0, found)]


def _parse_json(text: bytes) -> object:
    if len(text) > MAX_LINE_BYTES:
        return Unreadable(f"it has {len(text):,} bytes; at most {MAX_LINE_BYTES:,} are read")
    try:
        return json.loads(text)
    except UnicodeDecodeError as error:
        return Unreadable(f"it is not UTF-8 text (byte {error.start + 1})")
    except json.JSONDecodeError as error:
        return Unreadable(f"it is not JSON: {error.msg} (column {error.colno})")
    except (ValueError, RecursionError) as error:  # a number or a nesting that is too large
        return Unreadable(f"it is not usable JSON: {error}")


def _read_csv(data: bytes) -> Records:
    """The first row names the fields; `label.NAME` columns are labels, empty cells are left out."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield 0, Unreadable(f"it is not UTF-8 text (byte {error.start + 1})")
        return
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        names = [name.strip() for name in next(reader, [])]
        for row in reader:
            if any(cell.strip() for cell in row):
                yield reader.line_num, _make_csv_record(names, row)
    except csv.Error as error:
        yield reader.line_num, Unreadable(f"it is not CSV: {error}")


def _make_csv_record(names: list[str], row: list[str]) -> object:
    if len(row) > len(names):
        return Unreadable(f"it has {len(row)} cells, and the first row has {len(names)} names")
    record: dict[str, Any] = {}
    labels: dict[str, str] = {}
    for name, cell in zip(names, row, strict=False):
        if not cell.strip():
            continue
        if name.startswith(LABEL_PREFIX):
            labels[name.removeprefix(LABEL_PREFIX)] = cell.strip()
        elif name == "labels":
            found = _parse_json(cell.encode())
            if not isinstance(found, dict):
                return Unreadable('labels must be JSON such as {"language": "python"}')
            labels |= found
        else:
            record[name] = _parse_cell(name, cell)
    return record | ({"labels": labels} if labels else {})


def _parse_cell(name: str, cell: str) -> object:
    kind: type[int] | type[float] = int if name == "max_turns" else float
    if name != "max_turns" and name not in NUMBERS:
        return cell
    try:
        return kind(cell)
    except ValueError:
        return cell  # the type check names it


READERS: Mapping[str, Callable[[bytes], Iterable[tuple[int, object]]]] = {
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json,
    ".csv": _read_csv,
}
