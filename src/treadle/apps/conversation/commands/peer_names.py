"""Slash commands and options of Claude Code and Codex that have another name here, or none.

The same rows as in docs/coming-from-claude-code.md and docs/coming-from-codex.md; a test compares
them. Used where a command or an option is unknown, and imported only then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

_THINKING = "/config changes this session and is saved for later ones; the flag is for one run"
_NO_KEYS = "treadle login keeps a key, or the variables of the environment have it"
_NO_ACCOUNT = "there is no account, and nothing is sent"
_TWO_DECISIONS = "two decisions; deny rules still hold"
_CD_FIRST = "cd first: the folder decides about trust"
_VARIABLES = "variables TREADLE_NAME change settings for one run"


class Equivalent(NamedTuple):
    """What a name of theirs is here: `names` of ours, none if there is no such thing; `note` says
    what is different, or why there is none."""

    names: tuple[str, ...]
    note: str = ""

    def describe(self, commands: Iterable[str] | None = None) -> str:
        """For the end of an error message. `commands`: the slash commands of this host; others are
        not offered."""
        names = [one for one in self.names if commands is None or _is_offered(one, commands)]
        if not self.names:
            return f"there is none here: {self.note}"
        if not names:
            return f"only in the terminal: {', '.join(self.names)}"
        return f"here it is {', '.join(names)}" + (f" ({self.note})" if self.note else "")


def _is_offered(name: str, commands: Iterable[str]) -> bool:
    return not name.startswith("/") or name[1:].split()[0] in commands


def _make_table(*rows: tuple[str, tuple[str, ...], str]) -> Mapping[str, Equivalent]:
    return {name: Equivalent(ours, note) for theirs, ours, note in rows for name in theirs.split()}


# fmt: off
PEER_COMMANDS = _make_table(
    ("add-dir", ("--add-dir", "/config add_dir"),
     "which folders may be changed is decided at the start, or as a setting"),
    ("agent subagents", ("/agents",), ""),
    ("allowed-tools", ("/permissions", "treadle permissions"),
     "treadle permissions explain tells why a command is allowed"),
    ("branch", ("/fork",), "the session before stays unchanged"),
    ("checkpoint", ("/rewind", "/undo", "/redo"), "your own changes stay, also in the same file"),
    ("continue", ("/resume", "/sessions"), ""),
    ("copy", ("ctrl+y",), ""),
    ("effort fast", ("/config thinking", "--thinking"), _THINKING),
    ("experimental", (), "a feature is there, or it is not"),
    ("bug extra-usage feedback passes privacy-settings upgrade", (), _NO_ACCOUNT),
    ("color", ("/theme",), "the colours are those of the theme"),
    ("desktop mobile remote-control teleport", ("treadle web",),
     "the page in a browser, also over an SSH tunnel"),
    ("install-github-app", ("-p",), "a job of yours runs it: see ci.md"),
    ("keybindings", ("/config keys", "/vim"), "keys are in the table [keys] of config.toml"),
    ("loop", (), "cron, or a loop of the shell, can start treadle -p"),
    ("pr-comments", ("!",), "!gh pr view --comments: the model gets the output with your message"),
    ("release-notes", (), "CHANGELOG.md of the project has them"),
    ("hooks", ("treadle trust",),
     "lists the new and changed hooks of a folder and asks about them; hooks are edited in files"),
    ("ide", ("treadle acp",), "the editor runs Treadle, over an open protocol"),
    ("login logout", (), _NO_KEYS),
    ("mention", ("@",), ""),
    ("personality", ("/output-style",), "a style is a file of yours"),
    ("plugin", ("treadle plugin",), "it shows all that a plugin runs, and asks"),
    ("reset", ("/clear",), ""),
    ("sandbox", ("/config sandbox", "--sandbox"), "on by default"),
    ("sandbox-add-read-dir", ("--add-dir", "/config add_dir"), ""),
    ("security-review", ("/review",), "text after it says what is reviewed, such as main..HEAD"),
    ("stats", ("/cost", "treadle cost"), "treadle cost sums by day, model, project, session"),
    ("status", ("/config", "/cost", "/context"), "the line at the bottom shows the rest"),
    ("stop", ("/tasks",), "/tasks ID stops one"),
    ("terminal-setup", (), "not needed"),
)
# Also one letter: `-a` of Codex.
PEER_OPTIONS = _make_table(
    ("C cd", (), _CD_FIRST),
    ("a ask-for-approval", ("--permission-mode",),
     "untrusted is ask, on-request is auto; never with -p is what happens without a user: "
     "the call is denied"),
    ("agent agents", ("/agents",), "definitions are files"),
    ("allowedTools", ("--allow",), "once for each rule"),
    ("chrome", ("treadle mcp add --known playwright",), "a browser, as an MCP server"),
    ("dangerously-bypass-approvals-and-sandbox yolo",
     ("--permission-mode bypass", "--sandbox off"), _TWO_DECISIONS),
    ("dangerously-skip-permissions", ("--permission-mode bypass",), "deny rules still hold"),
    ("d debug", ("--verbose",), ""),
    ("disallowedTools", ("--deny",), "once for each rule"),
    ("effort", ("--thinking",), "also a number of tokens"),
    ("fallback-model", ("--model",), "fallbacks are named after commas"),
    ("fork-session", ("treadle sessions fork",), "a fork is a session of its own"),
    ("full-auto", ("--permission-mode auto",), ""),
    ("i image", ("--file",), "images, PDFs and text; @PATH in the prompt does the same"),
    ("ide", ("treadle acp",), "the editor runs Treadle"),
    ("json", ("--output-format stream-json",), "one JSON value for each line"),
    ("json-schema", ("--output-schema",), "a file"),
    ("local-provider oss", ("--model",), "treadle models lists the local ones"),
    ("m", ("--model",), "fallbacks are named after commas"),
    ("max-budget-usd", ("--max-cost",), "also --max-time, --max-tokens"),
    ("mcp-config", ("treadle mcp add",), ".mcp.json of the folder is read"),
    ("mode", ("--permission-mode",), ""),
    ("no-alt-screen", ("--inline", "--plain"),
     "the conversation stays in the terminal's scrollback"),
    ("output-last-message", ("-p", "--print"), "only the answer is on stdout: > FILE saves it"),
    ("profile", (), "a variable or an alias of the shell; here -p is --print"),
    ("remote", ("treadle web",), "the page in a browser, also over an SSH tunnel"),
    ("s", ("--sandbox", "--permission-mode plan"),
     "read-only is the mode plan; workspace-write is what commands get"),
    ("search", ("treadle config",),
     "on by default if the provider has one; the setting web_search"),
    ("session-id", (), "each session gets an ID, which --output-format json prints"),
    ("setting-sources settings", (), _VARIABLES),
    ("append-system-prompt-file", ("--append-system-prompt",), "@PATH is the text of a file"),
    ("system-prompt-file", ("--system-prompt",), "@PATH is the text of a file"),
    ("tools", ("--deny",), "once for each rule"),
)
# `treadle NAME`, where theirs is `claude NAME` or `codex NAME`.
PEER_SUBCOMMANDS = _make_table(
    ("agents", ("/agents",), "definitions are files"),
    ("app-server", ("treadle acp",), "the editor runs Treadle"),
    ("cloud", (), "there are no tasks in a cloud; changes are made in your folder"),
    ("auth logout setup-token", (), _NO_KEYS),
    ("completion", ("treadle completions",), ""),
    ("e exec", ("-p", "--print"), ""),
    ("features", (), "a feature is there, or it is not"),
    ("install migrate-installer update upgrade", (),
     "it is updated as any Python package: see upgrade.md"),
    ("mcp-server", ("treadle mcp",), ""),
    ("sandbox", ("--sandbox",), "commands of the agent run in it anyway"),
)
# fmt: on
