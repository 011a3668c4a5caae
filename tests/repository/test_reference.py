"""docs/reference is what scripts/reference.py writes, and it is complete: nothing that the program
has is missing."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.docs_site.repository_links import ROOT
from scripts.reference import FOLDER, find_differences
from scripts.reference_pages import exit_codes as exit_code_page
from scripts.reference_pages.api import NAMES
from scripts.reference_pages.events import list_events
from treadle import Agent, errors, events
from treadle.apps.cli.main import COMMANDS
from treadle.apps.conversation.commands.table import COMMANDS as SLASH_COMMANDS
from treadle.apps.settings.settings import SETTINGS
from treadle.hooks.hook_config import HOOK_EVENTS
from treadle.permissions.ruleset.rules import TOOL_NAMES_WITH_PATTERNS

SOURCE = ROOT / "src" / "treadle"
# Names of variables that are no user's: they are made, and read back, by the program itself.
OWN_VARIABLES = {"GIT_CONFIG_COUNT", "GIT_DIR", "GIT_WORK_TREE"}
ENVIRONMENTS = {"environ", "_environ", "env", "environment", "variables"}


def read(page: str) -> str:
    return (FOLDER / page).read_text()


def headings(page: str) -> set[str]:
    return set(re.findall(r"^##+ (.+)$", read(page), re.MULTILINE))


def test_the_pages_are_what_the_script_writes():
    # In a process of its own: the tests wrap some of what is described.
    command = [sys.executable, "-P", str(ROOT / "scripts" / "reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_a_page_that_differs_is_found(tmp_path: Path):
    (tmp_path / "settings.md").write_text("old")
    (tmp_path / "gone.md").write_text("left over")
    found = find_differences({"settings.md": "new", "errors.md": "x"}, tmp_path)
    assert found == ["errors.md", "gone.md", "settings.md"]


def test_no_page_names_this_machine():
    texts = "".join(page.read_text() for page in FOLDER.rglob("*.md"))
    assert str(ROOT) not in texts
    assert str(Path.home()) + "/" not in texts


def test_every_setting_command_and_hook_event_has_an_entry():
    assert headings("settings.md") == {one.name for one in SETTINGS}
    assert headings("slash-commands.md") == {f"/{one.name}" for one in SLASH_COMMANDS}
    named = {name for title in headings("hook-events.md") for name in title.split(", ")}
    assert set(HOOK_EVENTS) <= named
    rules = read("rules.md")
    assert [name for name in TOOL_NAMES_WITH_PATTERNS if not re.search(rf"\b{name}\b", rules)] == []


def test_every_exit_code_is_described_and_every_error_has_one_of_them():
    assert set(exit_code_page.TEXTS) == set(exit_code_page.list_constants())
    codes = set(map(int, re.findall(r"^\| (\d+) \|", read("exit-codes.md"), re.MULTILINE)))
    found = {exit_code_page.find_exit_code(getattr(errors, name)) for name in errors.__all__}
    assert found <= codes


def test_every_event_and_every_error_has_an_entry():
    kinds = [kind for kind in vars(events).values() if inspect.isclass(kind)]
    named = {kind.__name__ for kind in kinds if issubclass(kind, events.Event)} - {"Event"}
    assert {kind.__name__ for kind in list_events()} == named
    assert headings("events.md") == {*named, "TurnResult"}
    assert headings("errors.md") == set(errors.__all__)


class VariableFinder:
    """The environment variables that a module reads: `environ["X"]`, `environ.get(X)`,
    `"X" in environ`, and what is handed to a function together with an environment."""

    def __init__(self, source: str) -> None:
        self._tree = ast.parse(source)
        self._constants = {
            node.targets[0].id: node.value
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }

    def find(self) -> set[str]:
        names = {name for node in ast.walk(self._tree) for name in self._read(node)}
        return {name for name in names if re.fullmatch(r"[A-Z][A-Za-z0-9_]+", name)}

    def _read(self, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Subscript(value=value, slice=key, ctx=ast.Load()) if is_environment(value):
                yield from self._list_names(key)
            case ast.Compare(left=key, comparators=[value]) if is_environment(value):
                yield from self._list_names(key)
            case ast.Call(func=ast.Attribute(value=value, attr="get" | "pop" | "setdefault")) if (
                is_environment(value)
            ):
                yield from self._list_names(node.args[0])
            case ast.Call(args=arguments) if any(map(is_environment, arguments)):
                for one in arguments:
                    yield from self._list_names(one)
            case ast.comprehension(iter=names, ifs=conditions) if any(
                is_environment(part) for one in conditions for part in ast.walk(one)
            ):
                yield from self._list_names(names)

    def _list_names(self, node: ast.AST, depth: int = 0) -> Iterator[str]:
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Name(id=name) if name in self._constants and depth < 3:
                yield from self._list_names(self._constants[name], depth + 1)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                for part in parts:
                    yield from self._list_names(part, depth)
            case ast.Starred(value=value):
                yield from self._list_names(value, depth)


def is_environment(node: ast.AST) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) in ENVIRONMENTS


def test_every_variable_that_is_read_is_on_the_page():
    page = read("environment.md").partition("## What commands get")[0]
    found = {path: VariableFinder(path.read_text()).find() for path in SOURCE.rglob("*.py")}
    names = set().union(*found.values())
    assert {"ANTHROPIC_API_KEY", "XDG_STATE_HOME", "NO_COLOR", "RAY_ADDRESS"} <= names
    assert {name for name in names - OWN_VARIABLES if f"`{name}`" not in page} == set()


def test_a_variable_that_is_read_is_found():
    source = (
        'A = ("ONE_A", "ONE_B")\nos.environ.get("TWO")\nenviron["THREE"]\n"FOUR" in env\n'
        'find(A, environ)\nx = [n for n in ("FIVE",) if n in os.environ]\nother.get("SIX")\n'
    )
    expected = {"ONE_A", "ONE_B", "TWO", "THREE", "FOUR", "FIVE"}
    assert VariableFinder(source).find() == expected


def test_every_file_below_the_folders_of_the_program_is_on_the_page():
    page = read("files.md")
    pattern = re.compile(r"\b(?:treadle_home|find_state_dir)\(\) / \"([^\"]+)\"")
    found = {name for path in SOURCE.rglob("*.py") for name in pattern.findall(path.read_text())}
    assert {"config.toml", "keys.json", "batches"} <= found
    assert {name for name in found if not re.search(rf"`{re.escape(name)}/?`", page)} == set()


def test_the_reference_describes_every_public_name_once():
    pages = [page.read_text() for page in (FOLDER / "api").glob("*.md")]
    described = re.findall(r"^## (\w+)$", "".join(pages), re.MULTILINE)
    assert sorted(described) == sorted(
        {name.rpartition(".")[2] for name in NAMES.read_text().split()}
    )


def test_the_reference_shows_signatures_as_they_are_written():
    page = read("api/treadle.md")
    assert "class Agent(\n    model: str | Model,\n    tools: Sequence[ToolLike[Any]] = ()," in page
    assert " at 0x" not in page
    assert "<class" not in page


def test_the_reference_shows_a_property_without_parentheses():
    assert "\nproperty entries: list[Entry]\n" in read("api/treadle.testing.md")
    assert "\nproperty result: Result[OutputT]\n" in read("api/treadle.md")


def test_the_reference_begins_with_what_a_reader_looks_for():
    page = read("api/treadle.md")
    names = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    assert names[:3] == ["Agent", "Session", "Stream"]
    methods = re.findall(r"^### Agent\.(\w+)$", page, re.MULTILINE)
    assert methods[:4] == ["run", "run_sync", "stream", "session"]
    internal = {"finish_run", "make_run", "disconnect", "aclose_owned_model", "answer_parent"}
    assert not internal & set(dir(Agent))


def test_the_reference_has_the_help_of_every_command_and_its_subcommands():
    page = read("command-line.md")
    for name in COMMANDS:
        assert f"\n## treadle {name}\n\n```text\nusage: " in page
    assert "\n### treadle sessions rewind\n\n```text\nusage: treadle sessions rewind" in page
