"""What a new session shows before its first message: where it is, what applies, how to begin.

A value, built from the host in a thread: it reads the folder and the list of sessions.
render/first_screen.py of the terminal renders it.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from itertools import islice
from pathlib import Path

import msgspec

from treadle.apps.conversation.host import Host, SessionLine

MAX_SESSIONS = 3
MAX_IDEAS = 3
MAX_ENTRIES = 200  # of the folder that are looked at

# What to try, if the folder has one of these entries.
_IDEAS: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset({"tests", "test", "spec", "__tests__", "tox.ini", "pytest.ini", "Cargo.toml"}),
        "run the tests and fix what fails",
    ),
    (frozenset({".git"}), "review my changes since the last commit"),
    (
        frozenset(
            {"pyproject.toml", "setup.py", "package.json", "go.mod", "Cargo.toml", "pom.xml",
             "build.gradle", "Makefile", "CMakeLists.txt", "Gemfile", "composer.json", "src"}
        ),
        "explain how this project is built and where to begin",
    ),
    (frozenset({"Dockerfile", "compose.yaml"}), "explain what the containers do"),
    (frozenset({"README.md", "docs", "README.rst"}), "compare the README with the code"),
)  # fmt: skip
_IDEAS_FOR_CODE = (
    "look for a bug, and show it with a test",
    "find code that is not used",
    "explain the most complicated function",
)
_IDEAS_FOR_FILES = (
    "summarize the files of this folder",
    "which files are the same, or nearly the same?",
    "suggest better names for the files",
)
_IDEAS_FOR_NOTHING = (
    "write a program that prints the weather of a city",
    "make a web page with a list of things to do",
    "start a Python project with tests",
)
_CODE_SUFFIXES = frozenset(
    {".py", ".js", ".ts", ".tsx", ".go", ".rs", ".java", ".kt", ".c", ".h", ".cc", ".cpp", ".cs",
     ".rb", ".php", ".swift", ".sh", ".html"}
)  # fmt: skip
INIT_IDEA = "/init  writes AGENTS.md: what the agent should know about this project"


class FirstScreen(msgspec.Struct, frozen=True):
    """`files` take effect if the folder is trusted."""

    is_trusted: bool
    files: tuple[str, ...]
    sandbox: str  # the setting
    sessions: tuple[SessionLine, ...]
    ideas: tuple[str, ...]


def build_first_screen(host: Host, session_id: str) -> FirstScreen:
    """Reads files: for a thread. Without the session that is open."""
    has_sessions = "sessions" in host.abilities
    sessions = host.list_sessions(limit=MAX_SESSIONS + 1) if has_sessions else []
    settings = {name: value for name, value, _ in host.list_settings()}
    return FirstScreen(
        is_trusted=host.is_trusted,
        files=tuple(host.list_extension_files()),
        sandbox=settings.get("sandbox", ""),
        sessions=tuple(one for one in sessions if one.id != session_id)[:MAX_SESSIONS],
        ideas=choose_ideas(_list_names(host.folder)),
    )


def choose_ideas(names: Collection[str]) -> tuple[str, ...]:
    """Three things to try in a folder with these entries."""
    visible = [name for name in names if not name.startswith(".")]
    if not visible:
        return _IDEAS_FOR_NOTHING
    ideas = [idea for entries, idea in _IDEAS if not entries.isdisjoint(names)]
    if ideas and not {"AGENTS.md", "CLAUDE.md"} & set(names):
        ideas.insert(2, INIT_IDEA)
    others = _IDEAS_FOR_CODE if ideas or _has_code(visible) else _IDEAS_FOR_FILES
    return tuple([*ideas, *others][:MAX_IDEAS])


def _has_code(names: Collection[str]) -> bool:
    return any(Path(name).suffix in _CODE_SUFFIXES for name in names)


def _list_names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, MAX_ENTRIES)]
    except OSError:
        return []
