"""Reads the agent folders of public projects (`.claude`, `.codex`, `.cursor`, `.mcp.json`), and
compares with an independent reading: PyYAML, json and tomllib.

    .venv/bin/python tests/apps/settings/read_public_folders.py fetch FOLDER
    .venv/bin/python tests/apps/settings/read_public_folders.py read [--write] CLONE…

`fetch` clones the commits of tests/data/public_folders.json, which has only facts: the projects,
their commits, and how many files of each kind there are. A CLONE may be bare, and of another
project; nothing of it is copied here. Each folder with such files is started as a trusted one whose
hooks and servers are not approved, so that nothing of it runs. `read` prints a table, and each file
that is read in another way, or is neither read nor named in a note; `--write` writes the facts.
Not a test by itself: test_foreign_folders.py checks what it found.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from treadle.agents.agent_files import read_agent_files  # noqa: E402 - see sys.path
from treadle.apps.settings.command_files import find_custom_commands  # noqa: E402
from treadle.apps.settings.extensions import discover_extensions, load_skills  # noqa: E402
from treadle.apps.settings.folder_rules import (  # noqa: E402
    describe_project_rules,
    load_rules,
    read_project_rules,
)
from treadle.apps.settings.load import load_settings  # noqa: E402
from treadle.context.memory_files import FoundFile, read_patterns  # noqa: E402
from treadle.lib.text.frontmatter import parse_frontmatter, parse_list  # noqa: E402
from treadle.testing.provider import FakeReply, ProviderServer  # noqa: E402

FACTS = ROOT / "tests" / "data" / "public_folders.json"
FOLDERS = frozenset({".claude", ".codex", ".cursor", ".agents"})
FILES = frozenset({".mcp.json", "CLAUDE.md", "AGENTS.md", ".cursorrules"})
CODE = frozenset({"node_modules", ".git"})


class Finding(NamedTuple):
    project: str
    file: str
    problem: str


class Reading:
    """What Treadle read in one folder, and every line it says about it."""

    def __init__(self, folder: Path, printed: str) -> None:
        self.folder = folder
        self.agents, notes = read_agent_files([folder])
        self.skills, skill_notes = load_skills(folder, trusted=True)
        self.commands, command_notes = find_custom_commands([folder])
        found = discover_extensions(folder)
        self.waiting = {one.name for one in found.unapproved}
        self.rules = read_project_rules(folder)
        loaded = load_rules(folder)
        settings = load_settings(folder, environ={}, is_trusted=lambda: True)
        self.lines = [
            *(*notes, *skill_notes, *command_notes, *found.notes, *found.unsupported),
            *(*loaded.notes, *loaded.warnings, *settings.notes, *printed.splitlines()),
            *describe_project_rules(folder),
        ]

    def is_named(self, *words: str) -> bool:
        return any(all(word in line for word in words) for line in self.lines)


# --- the folders of a clone --------------------------------------------------------------------


def run_git(clone: Path, *words: str) -> bytes:
    command = ("git", "-C", str(clone), *words)
    return subprocess.run(command, check=True, capture_output=True).stdout


def list_projects(clone: Path) -> dict[str, list[str]]:
    """The folders of the newest commit that have files of agents, and these files."""
    names = run_git(clone, "ls-tree", "-r", "-z", "--name-only", "HEAD").decode().split("\0")
    projects: dict[str, list[str]] = {}
    for name in filter(None, names):
        parts = PurePosixPath(name).parts
        if CODE.intersection(parts):
            continue
        start = next((n for n, part in enumerate(parts) if part in FOLDERS), len(parts) - 1)
        if parts[start] in FOLDERS | FILES:
            projects.setdefault("/".join(parts[:start]), []).append(name)
    return {
        project: files
        for project, files in projects.items()
        if any(FOLDERS.intersection(Path(one).parts) or one.endswith(".mcp.json") for one in files)
    }


def fetch(folder: Path) -> list[Path]:
    """The commits that the facts name, each as a bare repository."""
    clones: dict[str, Path] = {}
    for fact in json.loads(FACTS.read_text("utf-8")):
        repository, commit = fact["repository"], fact["commit"]
        clone = clones.setdefault(repository, folder / repository.replace("/", "+"))
        if not clone.exists():
            run_git(folder, "init", "--quiet", "--bare", clone.name)
            url = f"https://github.com/{repository}"
            run_git(clone, "fetch", "--quiet", "--depth=1", url, commit)
            run_git(clone, "update-ref", "HEAD", commit)
    return list(clones.values())


def write_files(clone: Path, project: str, names: list[str], folder: Path) -> None:
    """The plain files: a symlink leads to what is not here."""
    with tarfile.open(fileobj=BytesIO(run_git(clone, "archive", "HEAD", "--", *names))) as archive:
        for member in archive.getmembers():
            if member.isfile() and (content := archive.extractfile(member)) is not None:
                path = folder / PurePosixPath(member.name).relative_to(project or ".")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())


async def start(folder: Path) -> tuple[int, str]:
    """One turn in the folder, as `treadle -p` makes it; nothing of the folder is approved."""
    treadle = (sys.executable, "-m", "treadle")
    async with ProviderServer([FakeReply("Done.")]) as server:
        environment = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k"}
        printed, exit_code = b"", 0
        for words in (("trust",), ("-p", "hi", "--verbose", "--model", "sonnet")):
            process = await asyncio.create_subprocess_exec(
                *treadle,
                *words,
                cwd=folder,
                env={**os.environ, **environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            printed += (await process.communicate())[0]
            exit_code = process.returncode or 0
    return exit_code, printed.decode()


# --- the comparison ----------------------------------------------------------------------------


def read_head(file: Path) -> dict[str, Any] | None:
    """The front matter as PyYAML reads it; None if it is no YAML."""
    text = file.read_text("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return {}
    head = text[4:].partition("\n---")[0]
    try:
        value = yaml.safe_load(head)
    except (yaml.YAMLError, ValueError):
        return None
    return value if isinstance(value, dict) else {}


def to_text(value: object) -> str:
    return " ".join(str("" if value is None else value).split())


def to_names(value: object) -> list[str]:
    """A list, or words between commas that are in no parentheses."""
    if isinstance(value, list):
        return [to_text(one) for one in value]
    return [to_text(one) for one in parse_list(to_text(value)) or []]


def compare(file: Path, fields: dict[str, tuple[object, object]]) -> Iterator[str]:
    for name, (ours, theirs) in fields.items():
        if ours != theirs:
            yield f"{name}: {str(ours)[:90]!r}, not {str(theirs)[:90]!r}"


def check_agents(reading: Reading) -> Iterator[tuple[Path, str]]:
    read = {Path(one.origin): one for one in reading.agents}
    for file in sorted((reading.folder / ".claude" / "agents").glob("**/*.md")):
        head = read_head(file)
        if file not in read:
            if not reading.is_named(str(file)):
                yield file, "an agent that is neither read nor named"
        elif head is not None:
            agent = read[file]
            fields: dict[str, tuple[object, object]] = {
                "name": (agent.name, to_text(head.get("name")) or file.stem),
                "description": (to_text(agent.description), to_text(head.get("description"))),
            }
            if "tools" in head and head["tools"] is not None:
                fields["tools"] = (list(agent.tools or ()), to_names(head["tools"]))
            yield from ((file, one) for one in compare(file, fields))


def describe_skill(file: Path) -> tuple[str, str]:
    body = file.read_text("utf-8").partition("\n---")[2]
    return to_text((read_head(file) or {}).get("description")), body.strip()


def check_skills(reading: Reading) -> Iterator[tuple[Path, str]]:
    read = {one.folder: one for one in reading.skills}
    texts = {describe_skill(one.folder / "SKILL.md") for one in reading.skills}
    for place in (".claude/skills", ".agents/skills", ".codex/skills", ".cursor/skills"):
        for file in sorted((reading.folder / place).glob("**/SKILL.md")):
            head = read_head(file)
            if file.parent not in read:
                is_hidden = any(part.startswith(".") for part in file.parent.parts[-2:])
                is_copy = describe_skill(file) in texts  # of one in another of these folders
                is_named = reading.is_named(str(file)) or reading.is_named(str(file.parent))
                if not is_named and not is_copy and not is_hidden:
                    yield file, "a skill that is neither read nor named"
            elif head is not None:
                skill = read[file.parent]
                description = to_text(head.get("description"))[:1024]
                fields: dict[str, tuple[object, object]] = {
                    "name": (skill.name, to_text(head.get("name")) or file.parent.name),
                    "description": (skill.description, description),
                }
                yield from ((file, one) for one in compare(file, fields))


def check_commands(reading: Reading) -> Iterator[tuple[Path, str]]:
    read = {one.file: one for one in reading.commands}
    for place in (".claude/commands", ".cursor/commands"):
        for file in sorted((reading.folder / place).glob("**/*.md")):
            head = read_head(file)
            if file not in read:
                if not reading.is_named(str(file)):
                    yield file, "a command that is neither read nor named"
            elif head is not None:
                command = read[file]
                fields: dict[str, tuple[object, object]] = {}
                if head.get("description"):
                    ours = to_text(command.summary)
                    fields["description"] = (ours, to_text(head["description"])[: len(ours)])
                if head.get("allowed-tools"):
                    theirs = to_names(head["allowed-tools"])
                    fields["allowed-tools"] = (sorted(command.allowed_tools), sorted(theirs))
                yield from ((file, one) for one in compare(file, fields))


def check_rules_of_memory(reading: Reading) -> Iterator[tuple[Path, str]]:
    for pattern, key in ((".claude/rules/**/*.md", "paths"), (".cursor/rules/**/*.mdc", "globs")):
        for file in sorted(reading.folder.glob(pattern)):
            head = read_head(file)
            if head is None or not head.get(key) or head.get("alwaysApply"):
                continue
            found = FoundFile(file, reading.folder, is_rule=True, base=reading.folder)
            ours = read_patterns(found, parse_frontmatter(file.read_text("utf-8"))[0])
            theirs = [one.removeprefix("./") for one in to_names(head[key])]
            patterns = [one.removeprefix("**/") for one in ours.patterns] if ours else []
            if patterns != [one.removeprefix("**/") for one in theirs]:
                yield file, f"{key}: {patterns}, not {theirs}"


def check_settings(reading: Reading) -> Iterator[tuple[Path, str]]:
    for name in ("settings.json", "settings.local.json"):
        file = reading.folder / ".claude" / name
        settings = read_json(file)
        if not isinstance(settings, dict):
            continue
        rules = reading.rules
        texts = {rule.text for rule in (*rules.allow, *rules.ask, *rules.deny)}
        permissions = settings.get("permissions") or {}
        for kind in ("allow", "ask", "deny"):
            for rule in permissions.get(kind) or []:
                if rule not in texts and not reading.is_named(str(rule)):
                    yield file, f"{kind} {rule!r} is neither read nor named"
        for event, groups in (settings.get("hooks") or {}).items():
            count = sum(len(group.get("hooks", [])) for group in groups if isinstance(group, dict))
            prefix = f".claude/{name}/{event}/"
            read = sum(one.startswith(prefix) for one in reading.waiting)
            if read != count and not reading.is_named(event):
                yield file, f"{event}: {read} of {count} hooks are read"


def read_json(file: Path) -> object:
    try:
        return json.loads(file.read_text("utf-8-sig"))
    except (OSError, ValueError):
        return None


def check_servers(reading: Reading) -> Iterator[tuple[Path, str]]:
    folder = reading.folder
    found: list[tuple[Path, object]] = [
        (folder / name, read_json(folder / name)) for name in (".mcp.json", ".cursor/mcp.json")
    ]
    codex = folder / ".codex" / "config.toml"
    if codex.exists():
        try:
            table = tomllib.loads(codex.read_text("utf-8")).get("mcp_servers", {})
        except ValueError:
            table = {}
        found.append((codex, {"mcpServers": table}))
    for file, settings in found:
        servers = settings.get("mcpServers") if isinstance(settings, dict) else None
        for name, server in servers.items() if isinstance(servers, dict) else ():
            is_off = isinstance(server, dict) and server.get("disabled") is True
            is_known = name in reading.waiting or reading.is_named(name)
            if not is_off and not is_known and not reading.is_named(str(file)):
                yield file, f"the server {name!r} is neither read nor named"


CHECKS: tuple[Callable[[Reading], Iterator[tuple[Path, str]]], ...] = (
    check_agents,
    check_skills,
    check_commands,
    check_rules_of_memory,
    check_settings,
    check_servers,
)


def check_project(title: str, folder: Path) -> tuple[Counter[str], list[Finding]]:
    """What is in the folder, and what is wrong with how it is read."""
    code, printed = asyncio.run(start(folder))
    findings = [] if code == 0 else [Finding(title, "", f"exit code {code}: {printed[-600:]}")]
    reading = Reading(folder, printed)
    for check in CHECKS:
        findings += (
            Finding(title, str(file.relative_to(folder)), problem)
            for file, problem in check(reading)
        )
    counts = Counter(
        agents=len(reading.agents),
        skills=len(reading.skills),
        commands=len(reading.commands),
        rules=sum(map(len, (reading.rules.allow, reading.rules.ask, reading.rules.deny))),
        waiting=len(reading.waiting),  # for an approval: hooks, servers and the like
    )
    return counts, findings


def read_clone(clone: Path) -> Iterator[tuple[dict[str, Any], list[Finding]]]:
    """The facts about each folder of a clone, and what is wrong with how it is read."""
    place = clone.parent if clone.name == "repo" else clone
    repository = place.name.replace("+", "/")
    commit = run_git(clone, "rev-parse", "HEAD").decode().strip()
    for project, names in sorted(list_projects(clone).items()):
        with tempfile.TemporaryDirectory() as given:
            home, folder = Path(given, "home"), Path(given, "work")
            home.mkdir()
            folder.mkdir()
            os.environ["HOME"] = str(home)
            write_files(clone, project, names, folder)
            if not any(folder.iterdir()):
                continue
            counts, findings = check_project(f"{repository} {project}".strip(), folder)
        yield (
            {
                "repository": repository,
                "commit": commit,
                "folder": project or ".",
                "files": len(names),
                **{name: count for name, count in sorted(counts.items()) if count},
            },
            findings,
        )


def main(words: list[str]) -> int:
    if words[:1] == ["fetch"]:
        print(*fetch(Path(words[1]).resolve()), sep="\n")
        return 0
    facts: list[dict[str, Any]] = []
    findings: list[Finding] = []
    for clone in (word for word in words[1:] if word != "--write"):
        for fact, found in read_clone(Path(clone)):
            print(json.dumps(fact), flush=True)
            facts.append(fact)
            findings += found
    if "--write" in words:
        lines = ",\n".join(json.dumps(fact) for fact in facts)
        FACTS.write_text(f"[\n{lines}\n]\n", "utf-8")
    print(f"{len(facts)} folders, {sum(fact['files'] for fact in facts)} files")
    for one in findings:
        print(f"  {one.project}: {one.file}: {one.problem}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
