"""The page of files and folders: what the program reads and writes, of a user and of a project.
tests/repository/test_reference.py looks for one that is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scripts.reference_pages.markdown import list_codes, make_list, make_page
from treadle.apps.settings.extensions import EXTENSION_FILES, UNREAD_FILES
from treadle.apps.settings.managed_policy import CLAUDE_FILE, POLICY_FILE

INTRODUCTION = """\
Every file and folder that Treadle reads or writes outside of its sessions. What it writes belongs
to you alone (mode 0600, folders 0700). `~/.treadle` has your settings and small files,
`~/.local/share/treadle` what you may want to keep, `~/.local/state/treadle` what outlives a crash,
`~/.cache/treadle` what may be deleted at any time.

An agent needs your approval to edit a file below `~/.treadle`, except in the mode `bypass`; a
command in the sandbox cannot write there."""
# File to what it is. A path ends with a slash if it is a folder.
HOME_FILES = {
    "config.toml": (
        "your settings ([all](settings.md)), also keys of the terminal, aliases of models and "
        "checkers"
    ),
    "settings.json": "your permission rules ([syntax](rules.md)), hooks and MCP servers",
    "AGENTS.md": "instructions for all your projects",
    "memory.json": (
        "the lines that the agent keeps, and those that it proposes "
        "([memory](../context.md#memory-that-the-agent-keeps))"
    ),
    "trust.json": (
        "which folders you trust, and which of their hooks, servers and commands you approved"
    ),
    "keys.json": "keys of `treadle login`, if the system has no keyring",
    "mcp-logins.json": "logins of MCP servers, if the system has no keyring",
    "history.jsonl": "messages that you sent, for ↑ and ctrl+r",
    "drafts/": "the prompt that you were writing when the program ended",
    "web.json": "the token of the link to the page",
    "plugins/": "copies of the plugins that you added ([plugins.md](../plugins.md))",
    "plugins.json": "their sources and hashes",
    "plugin_hashes.json": "hashes that need not be computed again; it may be deleted",
    "supervisor/": "the socket of what starts background sessions, for you alone, and its log",
    "fleet.db": "the database of a fleet, if you name no other",
    "agents/": "child agents, a Markdown file each ([child-agents.md](../child-agents.md))",
    "commands/": "slash commands of your own ([terminal.md](../terminal.md#commands))",
    "hooks/": "scripts of your hooks: seen by hooks also in folders that you do not trust",
    "output-styles/": "how the agent speaks ([context.md](../context.md))",
    "skills/": "skills ([skills.md](../skills.md))",
}
DATA_FILES = {
    "sessions/": "logs of sessions, by project ([what is in one](../sessions.md#on-the-disk))",
    "checkpoints/": "contents of files before and after the changes of the agent, for undo",
    "models/": "weights of embedded models",
    "fleet/": "folders of the runs of a fleet",
}
STATE_FILES = {
    "batches/": "requests to batch interfaces that wait for an answer",
    "running/": "commands that run in a sandbox, to clean up after a crash",
    "session-worktrees/": "worktrees of `--worktree`",
    "set_aside/": "what was moved away because a command may not make it",
    "system/": "what a sandbox shows instead of files of the system",
    "temps/": "names of temporary files, to remove them after a crash",
    "worktrees/": "worktrees of child agents",
}
CACHE_FILES = {"prefixes/": "the state of embedded models after their instructions"}
FOREIGN_FILES = {
    "~/.claude/settings.json": "its mode, model, folders, environment, rules and hooks",
    "~/.claude/CLAUDE.md": "instructions; also `~/.claude/rules/`",
    "~/.claude/commands/": (
        "slash commands; also `~/.claude/skills/`, `~/.claude/agents/`, `~/.claude/output-styles/`"
    ),
    "~/.codex/AGENTS.md": "instructions, or `AGENTS.override.md` there",
    "~/.codex/prompts/": "slash commands, as `/prompts:NAME`",
    "~/.codex/auth.json": "`treadle login` offers its key",
    "~/.gemini/GEMINI.md": "instructions, with the setting `cursor_gemini_files`",
}
# What the files of a trusted project mean, by their kind.
PROJECT_KINDS: Mapping[str, tuple[str, ...]] = {
    "instructions ([memory](../context.md#memory-files))": (
        "AGENTS.md",
        "AGENTS.override.md",
        "CLAUDE.md",
        "CLAUDE.local.md",
        ".claude/CLAUDE.md",
        ".claude/rules",
    ),
    "instructions, with the setting [`cursor_gemini_files`](settings.md#cursor_gemini_files)": (
        ".cursor/rules",
        ".cursorrules",
        "GEMINI.md",
    ),
    "settings, which can only narrow yours ([all](settings.md))": (".treadle/config.toml",),
    "rules ([syntax](rules.md)), hooks and servers": (
        ".treadle/settings.json",
        ".claude/settings.json",
        ".claude/settings.local.json",
    ),
    "MCP servers ([mcp.md](../mcp.md))": (".mcp.json", ".cursor/mcp.json", ".codex/config.toml"),
    "slash commands ([terminal.md](../terminal.md#commands))": (
        ".treadle/commands",
        ".claude/commands",
        ".cursor/commands",
    ),
    "child agents ([child-agents.md](../child-agents.md))": (".treadle/agents", ".claude/agents"),
    "skills ([skills.md](../skills.md))": (
        ".treadle/skills",
        ".claude/skills",
        ".agents/skills",
        ".codex/skills",
        ".cursor/skills",
    ),
    "output styles": (".treadle/output-styles", ".claude/output-styles"),
}


def write_page() -> str:
    named = [name for names in PROJECT_KINDS.values() for name in names]
    if sorted(named) != sorted(EXTENSION_FILES):
        raise ValueError(f"PROJECT_KINDS and EXTENSION_FILES: {set(named) ^ {*EXTENSION_FILES}}")
    kinds = make_list(f"{list_codes(names)}: {text}" for text, names in PROJECT_KINDS.items())
    policy = f"""\
Only root may have written these; they narrow what every user may do ([managed
policy](../permissions.md)).

- `{POLICY_FILE}`: ours
- `{CLAUDE_FILE}`: that of Claude Code, and `managed-settings.d/*.json` beside it"""
    project = f"""\
Used once you trust the folder (`treadle trust`); deny and ask rules always are.

{kinds}
- `.treadle/settings.local.json`: your own rules for this project, which git does not see; "always"
  saves here

Treadle names these files of other programs and does not use them: {list_codes(UNREAD_FILES)}."""
    return make_page(
        "Files and folders",
        INTRODUCTION,
        f"## Yours: ~/.treadle\n\n{describe(HOME_FILES)}",
        f"## Data: ~/.local/share/treadle\n\nOr `treadle` in "
        f"`XDG_DATA_HOME`.\n\n{describe(DATA_FILES)}",
        f"## State: ~/.local/state/treadle\n\nOr `treadle` in "
        f"`XDG_STATE_HOME`.\n\n{describe(STATE_FILES)}",
        f"## Caches: ~/.cache/treadle\n\nOr `treadle` in "
        f"`XDG_CACHE_HOME`.\n\n{describe(CACHE_FILES)}",
        f"## Of a project\n\n{project}",
        f"## Of other programs, in your home\n\n{describe(FOREIGN_FILES)}",
        f"## Of the machine\n\n{policy}",
    )


def describe(files: Mapping[str, str]) -> str:
    return make_list(_describe_each(files))


def _describe_each(files: Mapping[str, str]) -> Iterable[str]:
    return (f"`{name}`: {text}" for name, text in files.items())
