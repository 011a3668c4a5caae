"""Every key, command and flag of ours that the pages for newcomers name exists."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from textual.widgets import TextArea

from treadle.apps.cli.commands import sessions
from treadle.apps.cli.main import COMMANDS as PROGRAMS
from treadle.apps.cli.main import SESSION_COMMANDS
from treadle.apps.cli.options import OPTIONS_BY_LETTER, OPTIONS_BY_NAME
from treadle.apps.conversation.approval_text import list_approval_options
from treadle.apps.conversation.commands.expansion import describe_unknown_command
from treadle.apps.conversation.commands.peer_names import (
    PEER_COMMANDS,
    PEER_OPTIONS,
    PEER_SUBCOMMANDS,
    Equivalent,
)
from treadle.apps.conversation.commands.table import ALIASES, COMMANDS
from treadle.apps.conversation.session.session_permissions import SELECTABLE_MODES
from treadle.apps.settings.settings import SETTINGS_BY_NAME
from treadle.apps.tui.app import KEY_DESCRIPTIONS, TerminalApp
from treadle.apps.tui.widgets.transcript import TranscriptWidget
from treadle.core.contracts.policy import Risk
from treadle.core.steps import PendingApproval
from treadle.core.transcript.content import ToolCall

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("coming-from-claude-code.md", "coming-from-codex.md")
SECTIONS = ("Keys", "Slash commands", "Flags")
NOT_ON_THE_PAGES = {"mode"}  # of other programs
# Of the prompt itself (widgets/prompt.py); docs/terminal.md has them.
PROMPT_KEYS = {"shift+enter", "alt+enter", "ctrl+j", "esc", "\\", "/", "!", "@", "up", "down"}


def list_rows(page: str, section: str) -> Iterator[tuple[str, list[str], str]]:
    """What they have, the code in our column, and the difference."""
    text = (DOCS / page).read_text(encoding="utf-8")
    body = text.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    for line in body.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[1] != "Treadle" and not cells[0].startswith("---"):
            yield cells[0], re.findall(r"`([^`]+)`", cells[1]), cells[2]


def list_keys() -> set[str]:
    call = ToolCall("1", "bash", '{"command": "x"}')
    approval = PendingApproval(call, "", "", ("Bash(x)",), risks=(Risk("no_network"),))
    keys = {option.key for option in list_approval_options(approval, is_child=False)}
    for bindings in (TerminalApp.BINDINGS, TextArea.BINDINGS, TranscriptWidget.BINDINGS):
        for binding in bindings:
            keys |= set((binding[0] if isinstance(binding, tuple) else binding.key).split(","))
    described = {key for names, _ in KEY_DESCRIPTIONS for key in names.split()}
    return keys | described | PROMPT_KEYS


def find_problem(code: str) -> str:
    """What does not exist; "" if all of it does."""
    name, *rest = code.split()
    if name in list_keys() and not rest:
        return ""
    if name.startswith("/"):
        known = {command.name for command in COMMANDS}
        argument: dict[str, set[str]] = {
            "config": set(SETTINGS_BY_NAME),
            "mode": set(SELECTABLE_MODES),
        }
        is_known = name[1:] in known and set(rest) <= argument.get(name[1:], set())
    elif name == "treadle":
        is_known = rest[0] in PROGRAMS
        is_known = is_known and (
            rest[0] != "sessions" or rest[1] in Path(sessions.__file__).read_text()
        )
    elif name.startswith("--"):
        option = OPTIONS_BY_NAME.get(name[2:])
        is_known = option is not None and set(rest) <= set(option.choices)
    elif name.startswith("-"):
        is_known = name[1:] in OPTIONS_BY_LETTER
    else:
        is_known = False
    return "" if is_known else code


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("section", SECTIONS)
def test_what_a_page_says_is_here_is_here(page: str, section: str):
    rows = list(list_rows(page, section))
    assert len(rows) > 12
    missing = [problem for _, codes, _ in rows for code in codes if (problem := find_problem(code))]
    assert not missing


def test_a_name_that_does_not_exist_is_found():
    wrong = ["/nonsense", "--nonsense", "ctrl+q", "treadle nonsense", "/mode nonsense", "-z"]
    assert [find_problem(code) for code in wrong] == wrong


def test_names_of_other_programs_lead_to_commands_of_ours():
    names = {command.name for command in COMMANDS}
    assert set(ALIASES.values()) <= names
    assert not set(ALIASES) & names


def read_equivalents(section: str, name_of_theirs: str) -> dict[str, set[Equivalent]]:
    """What the pages say about each name of theirs."""
    found: dict[str, set[Equivalent]] = defaultdict(set)
    for page in PAGES:
        for theirs, codes, note in list_rows(page, section):
            if not theirs.startswith(("codex ", "claude ")):
                note = "" if note == "none" else note.replace("`", "")
                for name in re.findall(name_of_theirs, theirs):
                    found[name].add(Equivalent(tuple(codes), note))
    return found


@pytest.mark.parametrize(
    ("section", "name_of_theirs", "ours", "table"),
    [
        (
            "Slash commands",
            r"/([\w-]+)",
            {*(command.name for command in COMMANDS), *ALIASES},
            PEER_COMMANDS,
        ),
        (
            "Flags",
            r"(?<!\w)--?([\w-]+)",
            {*OPTIONS_BY_NAME, *OPTIONS_BY_LETTER},
            PEER_OPTIONS,
        ),
    ],
    ids=["commands", "options"],
)
def test_an_unknown_name_of_theirs_is_answered_as_the_pages_say(
    section: str, name_of_theirs: str, ours: set[str], table: Mapping[str, Equivalent]
):
    said = read_equivalents(section, name_of_theirs)
    assert set(said) - ours == set(table) - NOT_ON_THE_PAGES
    assert not set(table) & ours
    assert not [name for name in set(table) & set(said) if table[name] not in said[name]]


def test_a_subcommand_of_theirs_is_answered_as_the_pages_say():
    said: dict[str, set[Equivalent]] = defaultdict(set)
    for page in PAGES:
        for theirs, codes, note in list_rows(page, "Flags"):
            text = "" if note == "none" else re.sub(r"\[(.+?)\]\(.+?\)", r"\1", note)
            for name in re.findall(r"(?:codex|claude) ([\w-]+)", theirs):
                said[name].add(Equivalent(tuple(codes), text.replace("`", "")))
    assert set(said) - set(PROGRAMS) - set(SESSION_COMMANDS) == set(PEER_SUBCOMMANDS)
    assert not [name for name, one in PEER_SUBCOMMANDS.items() if one not in said[name]]


@pytest.mark.parametrize(
    ("name", "known", "answer"),
    [
        ("reset", {"clear"}, "unknown command /reset; here it is /clear"),
        ("status", {"config", "context"}, "here it is /config, /context (the line at the bottom"),
        ("reset", {"new"}, "only in the terminal: /clear"),
        ("stop", {"stop-words", "tasks"}, "here it is /tasks (/tasks ID stops one)"),
        ("login", {"log"}, "there is none here: treadle login keeps a key"),
        ("bug", {"budget"}, "there is none here: there is no account, and nothing is sent"),
        ("color", {"clear", "theme"}, "here it is /theme (the colours are those of the theme)"),
        ("teleport", {"export"}, "here it is treadle web"),
        ("pr-comments", {"commit"}, "here it is ! (!gh pr view --comments"),
        ("comit", {"commit"}, "did you mean /commit?"),
    ],
)
def test_a_command_of_another_program_is_answered_with_ours_and_not_with_a_near_skill(
    name: str, known: set[str], answer: str
):
    assert answer in describe_unknown_command(name, known)


@pytest.mark.parametrize("page", PAGES)
def test_a_row_that_has_nothing_here_says_why(page: str):
    text = (DOCS / page).read_text(encoding="utf-8")
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[0] and not cells[1]:
            assert cells[2], line
