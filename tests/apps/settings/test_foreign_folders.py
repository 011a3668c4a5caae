"""Files of Codex, Cursor and others in a folder: what is read, what needs approval, what is named.

read_public_folders.py reads those of public projects; its facts are checked here, too.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treadle.apps.settings.command_files import find_custom_commands
from treadle.apps.settings.extensions import (
    approve_extensions,
    discover_extensions,
    list_extension_files,
    load_skills,
)
from treadle.apps.settings.folder_rules import open_trust_store

FACTS = Path(__file__).parents[2] / "data" / "public_folders.json"
CODEX = """\
model = "gpt-6"
[mcp_servers.docs]
command = "docs-server"
args = ["--stdio"]
startup_timeout_sec = 20
[mcp_servers.far]
url = "https://mcp.example/v1"
bearer_token_env_var = "FAR_TOKEN"
http_headers = { X-Team = "core" }
env_http_headers = { X-Key = "FAR_KEY" }
[mcp_servers.unused]
command = "never"
enabled = false
"""


@pytest.fixture
def folder(own_place: Path) -> Path:
    found = own_place / "cwd"
    found.mkdir(exist_ok=True)
    return found


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def write_skill(folder: Path, name: str, body: str) -> None:
    write(folder / name / "SKILL.md", f"---\nname: {name}\ndescription: About {name}\n---\n{body}")


def test_servers_of_cursor_and_codex_start_once_they_are_approved(folder: Path) -> None:
    cursor = {"command": "run", "args": ["${workspaceFolder}/s.js"], "env": {"K": "${env:KEY}"}}
    write(folder / ".cursor" / "mcp.json", json.dumps({"mcpServers": {"here": cursor}}))
    write(folder / ".codex" / "config.toml", CODEX)
    before = discover_extensions(folder)
    assert before.servers == {}
    assert {one.name for one in before.unapproved} == {"here", "docs", "far"}
    open_trust_store().trust(folder)
    approve_extensions(folder)
    found = discover_extensions(folder)
    assert (found.unapproved, found.notes) == ((), ())
    assert found.servers == {
        "here": {"command": "run", "args": [f"{folder}/s.js"], "env": {"K": "${KEY}"}},
        "docs": {"command": "docs-server", "args": ["--stdio"], "startupTimeout": 20_000},
        "far": {
            "url": "https://mcp.example/v1",
            "headers": {
                "X-Team": "core",
                "X-Key": "${FAR_KEY}",
                "Authorization": "Bearer ${FAR_TOKEN}",
            },
        },
    }


def test_a_server_file_that_is_wrong_starts_nothing_and_is_named(folder: Path) -> None:
    write(folder / ".mcp.json", json.dumps({"mcpServers": {"own": {"command": "own-server"}}}))
    write(folder / ".codex" / "config.toml", "[mcp_servers\n")
    found = discover_extensions(folder)
    assert [one.name for one in found.unapproved] == ["own"]
    assert [".codex/config.toml" in note for note in found.notes] == [True]


def test_skills_and_commands_of_other_agents_are_used_and_of_two_one_is_named(folder: Path) -> None:
    write_skill(folder / ".agents" / "skills", "release", "Tag it.")
    write_skill(folder / ".codex" / "skills", "release", "Tag it.")
    write_skill(folder / ".cursor" / "skills", "release", "Do not tag it.")
    write_skill(folder / ".codex" / "skills", "notes", "Write them.")
    write(folder / ".cursor" / "commands" / "fix.md", "Fix $ARGUMENTS")
    skills, notes = load_skills(folder, trusted=True)
    assert [(one.name, one.folder.parts[-3]) for one in skills] == [
        ("notes", ".codex"),
        ("release", ".agents"),
    ]
    assert notes == [
        f"{folder}/.cursor/skills/release: not used, {folder}/.agents/skills/release has the same "
        "name"
    ]
    commands, problems = find_custom_commands([folder])
    assert ({one.name for one in commands}, problems) == ({"fix", "notes", "release"}, [])


def test_what_means_nothing_here_is_named_in_one_line(folder: Path) -> None:
    write(folder / ".cursor" / "hooks.json", "{}")
    write(folder / ".codex" / "agents" / "a.toml", "")
    assert discover_extensions(folder).unsupported == (
        f"{folder}: not read here: .cursor/hooks.json, .codex/agents",
    )


def test_files_of_many_agents_are_named(folder: Path) -> None:
    names = (".gemini/settings.json", ".vscode/mcp.json", ".windsurfrules", ".clinerules")
    for name in (*names, "opencode.json", ".kiro/hooks/a.json", ".roo/rules/a.md"):
        write(folder / name, "{}")
    (line,) = discover_extensions(folder).unsupported
    assert all(name in line for name in (*names, "opencode.json", ".kiro/hooks", ".roo/rules"))


def test_trust_names_the_files_of_cursor_and_gemini_only_if_they_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".cursorrules", "GEMINI.md", "AGENTS.md"):
        write(folder / name, "Be brief.")
    assert list_extension_files(folder) == ["AGENTS.md"]
    monkeypatch.setenv("TREADLE_CURSOR_GEMINI_FILES", "1")
    assert list_extension_files(folder) == ["AGENTS.md", ".cursorrules", "GEMINI.md"]


def test_the_facts_are_about_thirty_public_projects(folder: Path) -> None:
    facts = json.loads(FACTS.read_text("utf-8"))
    assert len({fact["repository"] for fact in facts}) >= 30
    for kind in ("agents", "skills", "commands", "rules", "waiting"):
        assert sum(fact.get(kind, 0) > 0 for fact in facts) >= 5, kind
