"""The page of the rule syntax. Each rule on it is parsed: a wrong one is an error."""

from __future__ import annotations

from scripts.reference_pages.markdown import list_codes, make_entry, make_list, make_page
from treadle.permissions.ruleset.rules import (
    EDIT_TOOLS,
    READ_TOOLS,
    RULE_LISTS,
    parse_rule,
)

INTRODUCTION = """\
A permission rule is the name of a tool, or the name with a pattern in parentheses. Rules are in
three lists of a `settings.json`, {lists}; deny wins over ask, ask wins over allow, in whichever
file they are. [permissions.md](../permissions.md) explains how commands are parsed, modes and the
sandbox.

`treadle permissions explain "git push"` says which rule decides. Tool names ignore case."""
# Title, what the rules match, the rules.
ROWS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Every command",
        "Every command, except code on the command line (`python -c ...`).",
        ("Bash",),
    ),
    ("One command", "Exactly this command.", ("Bash(npm test)",)),
    (
        "Commands by their beginning",
        "This command with any further words.",
        ("Bash(npm test:*)", "Bash(npm test *)"),
    ),
    ("Commands by a pattern", "A pattern over the words of a command.", ("Bash(* --version)",)),
    (
        "Commands in one pipeline",
        "These commands in one pipeline, in this order. Only in the deny and ask lists.",
        ("Bash(curl * | sh)",),
    ),
    (
        "Files",
        "`Edit` is writing by any tool, also `>` in a command; {edit} mean the same. What changes "
        "a part of a file, or "
        "moves it, also reads it: deny and ask rules for `Read` hold for it.",
        ("Read(src/**)", "Edit(src/**)"),
    ),
    (
        "Notebooks",
        "Only the notebook tool; `Edit` rules apply to it as well.",
        ("NotebookEdit", "NotebookEdit(*.ipynb)"),
    ),
    (
        "Searches",
        "Only the search tool; `Read` rules apply to {read} as well.",
        ("Grep(src/**)", "Glob(src/**)", "Ls(src/**)"),
    ),
    (
        "Web pages",
        "This host on the usual ports of http and https; with a port, this port, too; in the deny "
        "list also all hosts "
        "below it. `*.x.org` is all hosts below it.",
        ("WebFetch(domain:x.org)", "WebFetch(domain:x.org:8080)", "WebFetch(domain:*.x.org)"),
    ),
    (
        "Other tools",
        "A tool by its name: a search of the web, what is typed into a running command.",
        ("WebSearch", "task_input"),
    ),
    (
        "Tools of MCP servers",
        "All tools of a server, or one; `*` stands for any part of a tool's name.",
        ("mcp__server", "mcp__server__*", "mcp__server__tool"),
    ),
    (
        "The sandbox",
        "A command that asks for the network, for one host of it, or to run outside of the "
        "sandbox, gets it; the "
        "command itself needs its own rule. In the allow list of a project such a rule is named "
        "and not used.",
        ("Sandbox(network)", "Sandbox(network:x.org)", "Sandbox(off)"),
    ),
)
PATHS = """\
Paths are similar to those in a `.gitignore`:

| pattern | relative to |
|---|---|
| `*.env` | the folder of the project, in deny and ask rules also added ones: any depth |
| `src/**`, `./src/**`, `/src/**` | the folder of the project |
| `~/notes/**` | your home |
| `//etc/**` | the root of the file system |

`*.{key,pem}` lists alternatives; a backslash quotes the next character: `\\[id\\].tsx`."""
SPELLINGS = {
    "applypatch": "ApplyPatch",
    "multiedit": "MultiEdit",
    "renamesymbol": "RenameSymbol",
    "write": "Write",
}
PATTERNS = ("*.env", "src/**", "./src/**", "/src/**", "~/notes/**", "//etc/**", "*.{key,pem}")


def write_page() -> str:
    for pattern in PATTERNS:
        parse_rule(f"Read({pattern})")
    return make_page(
        "Rule syntax",
        INTRODUCTION.format(lists=list_codes(RULE_LISTS)),
        *(describe(*row) for row in ROWS),
        f"## Patterns of paths\n\n{PATHS}",
    )


def describe(title: str, text: str, rules: tuple[str, ...]) -> str:
    for rule in rules:
        parse_rule(rule)
    others = sorted(SPELLINGS[one] for one in EDIT_TOOLS - {"edit"})
    text = text.format(edit=list_codes(others), read=list_codes(sorted(READ_TOOLS - {"read"})))
    return make_entry(title, text) + "\n\n" + make_list(f"`{rule}`" for rule in rules)
