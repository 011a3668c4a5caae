"""What a new session shows before its first message: where it is, what applies, how to begin.

A value, built from the host in a thread: it reads the folder and the list of sessions. The terminal
renders it (render/render.py), or prints it in words.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from itertools import islice
from pathlib import Path

import msgspec

from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.session.saved_sessions import SessionLine
from treadle.apps.conversation.session.session_permissions import describe_mode
from treadle.core.contracts.model import ModelCard
from treadle.lib.text.text import format_age, plural, shorten_home

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


def build_first_screen(session: HostedSession, session_id: str) -> FirstScreen:
    """Reads files: for a thread. Without the session that is open."""
    sessions = session.saved.list_sessions(limit=MAX_SESSIONS + 1)
    settings = session.settings.format_values()
    return FirstScreen(
        is_trusted=session.trust.is_given,
        files=tuple(session.trust.list_files()),
        sandbox=settings.get("sandbox", ""),
        sessions=tuple(one for one in sessions if one.id != session_id)[:MAX_SESSIONS],
        ideas=choose_ideas(_list_names(session.folder)),
    )


class Fact(msgspec.Struct, frozen=True):
    """A line of the first screen. `is_warning`: the user should not miss it."""

    label: str
    text: str
    is_warning: bool = False


def list_facts(screen: FirstScreen, session: HostedSession) -> list[Fact]:
    """What applies now: it may have changed since the screen was built."""
    return [
        Fact("folder", shorten_home(session.folder)),
        Fact("trust", _describe_trust(screen), not screen.is_trusted),
        Fact("model", _describe_model(session.model.card)),
        Fact("mode", describe_mode(session.permissions.mode)),
        _describe_sandbox(screen, session),
    ]


def describe_session(session: SessionLine) -> tuple[str, str]:
    """Its title, and its age and length."""
    age = format_age(time.time() - session.updated)
    title = " ".join(session.title.split()) or "(no messages)"
    return title, f"{age}, {plural(session.turns, 'turn')}"


def format_first_screen(screen: FirstScreen, session: HostedSession) -> str:
    """The whole of it in words, for a terminal that only prints lines."""
    facts = list_facts(screen, session)
    lines = [f"{fact.label.capitalize()}: {fact.text}" for fact in facts]
    if screen.sessions:
        lines.append("Last sessions here; a number and enter continues one:")
    for number, one in enumerate(screen.sessions, 1):
        lines.append(f"  {number} {', '.join(describe_session(one))}")
    lines += ["Things to try:", *(f"  {idea}" for idea in screen.ideas)]
    return "\n".join([*lines, "/help lists the commands."])


def _describe_trust(screen: FirstScreen) -> str:
    files = ", ".join(screen.files)
    if screen.is_trusted:
        return f"trusted, reads {files}" if files else "trusted"
    return f"not trusted: {files} not used (/trust)" if files else "not trusted (/trust)"


def _describe_model(card: ModelCard) -> str:
    if card.input_price == 0 or card.input_price is None or card.output_price is None:
        return f"{card.name}, {'free' if card.input_price == 0 else 'price not known'}"
    prices = f"${card.input_price:g} in, ${card.output_price:g} out per million tokens"
    return f"{card.name}, {prices}"


def _describe_sandbox(screen: FirstScreen, session: HostedSession) -> Fact:
    if screen.sandbox == "off":
        return Fact("sandbox", "off: commands can reach all that you can", True)
    if problem := session.sandbox_problem:
        return Fact("sandbox", f"none: {problem}", True)
    return Fact("sandbox", "on: commands write only in this folder")


def choose_ideas(names: Collection[str]) -> tuple[str, ...]:
    """Three things to try in a folder with these entries."""
    visible = [name for name in names if not name.startswith(".")]
    if not visible:
        return _IDEAS_FOR_NOTHING
    ideas = [idea for entries, idea in _IDEAS if not entries.isdisjoint(names)]
    if ideas and not {"AGENTS.md", "CLAUDE.md"} & set(names):
        ideas.insert(2, INIT_IDEA)
    has_code = any(Path(name).suffix in _CODE_SUFFIXES for name in visible)
    others = _IDEAS_FOR_CODE if ideas or has_code else _IDEAS_FOR_FILES
    return tuple([*ideas, *others][:MAX_IDEAS])


def _list_names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, MAX_ENTRIES)]
    except OSError:
        return []
