"""`treadle plugin`: plugins of Claude Code: add, list, update, remove.

    source (folder, git repository)  ->  one plugin of it  ->  copy  ->  question  ->  ~/.treadle

Nothing of a plugin runs here: git fetches files, without hooks and submodules, and the copy is what
the user is shown and agrees to, by its hash. Uses settings/plugins.py, which reads the copies.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from treadle.apps.console import exit_codes
from treadle.apps.console.console import (
    UsageError,
    ask_yes,
    command,
    print_error,
    print_line,
)
from treadle.apps.settings.plugins import (
    KEY,
    MANIFEST,
    Plugin,
    PluginParts,
    describe_change,
    get_plugins_folder,
    get_record_file,
    hash_content,
    iterate_files,
    list_plugins,
    read_parts,
)
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_settings_file, update_settings_file
from treadle.lib.files.private_files import make_private_folder
from treadle.lib.text.sanitize import escape_invisible

USAGE = """\
usage: treadle plugin list                          those that you added, and what each brings
       treadle plugin add SOURCE [NAME] [--yes]     add one, after you saw all that it runs
           SOURCE   a folder, a git URL, or owner/repo of GitHub; #REF after it: a branch, a tag
           NAME     which one, if SOURCE is a marketplace (without NAME they are listed)
           --yes    agree to what it brings, as it is now (for scripts)
       treadle plugin update NAME [--yes]           get it again; asks if it changed
       treadle plugin remove NAME"""

MARKETPLACE = ".claude-plugin/marketplace.json"
MAX_SHOWN_CHARS = 100  # of a description
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
_GITHUB = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_GIT_URL = re.compile(r"(?:https|ssh|file)://\S+|[\w.-]+@[\w.-]+:\S+")
_REF = re.compile(r"[0-9A-Za-z][0-9A-Za-z._/-]*")
_USER_OF_URL = re.compile(r"(?<=://)[^/@\s]+@")
_GIT_VARIABLES = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_ALLOW_PROTOCOL": "https:ssh:file",
}


@command("treadle plugin", USAGE)
def run(arguments: list[str]) -> int:
    words = [word for word in arguments if word != "--yes"]
    is_agreed = len(words) < len(arguments)
    match words:
        case ["list"]:
            return _list()
        case ["add", source, *name] if len(name) <= 1:
            return _add(source, name[0] if name else "", is_agreed)
        case ["update", name]:
            return _update(_find(name), is_agreed)
        case ["remove", name]:
            return _remove(_find(name))
    if not words:
        print(USAGE, file=sys.stderr)
        return exit_codes.USAGE_ERROR
    raise UsageError(f"{shlex.join(words)!r} is no command; see `treadle plugin --help`")


def _list() -> int:
    plugins = list_plugins()
    for plugin in plugins:
        source = _USER_OF_URL.sub("", plugin.source)
        origin = " ".join(filter(None, (source, plugin.entry, plugin.commit[:12])))
        print_line(f"{plugin.name}  {escape_invisible(origin)}")
        if plugin.is_unchanged:
            parts = PluginParts()
            read_parts(plugin, parts)
            _print_parts(parts)
        else:
            print_line(f"  {escape_invisible(describe_change(plugin))}")
    if not plugins:
        print_line("no plugins; add one with `treadle plugin add SOURCE`")
    return exit_codes.SUCCESS


def _add(source: str, name: str, is_agreed: bool) -> int:
    if Path(source).expanduser().is_dir():
        source = str(Path(source).expanduser().resolve())
    with _fetching(source) as (folder, commit):
        entries = _read_marketplace(folder)
        is_plugin = not entries or (folder / MANIFEST).exists()
        if entries and not name and not is_plugin:
            return _list_entries(source, entries)
        if entries and (name in entries or not is_plugin):
            return _install(Plugin(name, source, name, commit), folder, is_agreed)
        manifest = read_settings_file(folder / MANIFEST, folder)[0]
        last = source.partition("#")[0].rstrip("/").rpartition("/")[2].removesuffix(".git")
        name = name or str(manifest.get("name") or last)
        return _install(Plugin(name, source, "", commit), folder, is_agreed)


def _update(plugin: Plugin, is_agreed: bool) -> int:
    with _fetching(plugin.source) as (folder, commit):
        return _install(msgspec.structs.replace(plugin, commit=commit), folder, is_agreed)


def _remove(plugin: Plugin) -> int:
    def forget(record: dict[str, Any]) -> bool:
        return record.get(KEY, {}).pop(plugin.name, None) is not None

    update_settings_file(get_record_file(), forget)
    shutil.rmtree(plugin.root, ignore_errors=True)
    print_line(f"{plugin.name} is removed")
    return exit_codes.SUCCESS


def _find(name: str) -> Plugin:
    plugins = {plugin.name: plugin for plugin in list_plugins()}
    if name not in plugins:
        known = ", ".join(plugins) or "none"
        raise UsageError(f"there is no plugin {name!r} (there are: {known})")
    return plugins[name]


# ------------------------------------------------------------------ sources


@contextmanager
def _fetching(source: str) -> Iterator[tuple[Path, str]]:
    """The folder with the content of a source, and the commit of a repository."""
    if Path(source).is_absolute():
        yield Path(source), ""
        return
    url, _, ref = source.partition("#")
    if _GITHUB.fullmatch(url):
        url = f"https://github.com/{url}"
    if not _GIT_URL.fullmatch(url) or (ref and not _REF.fullmatch(ref)):
        raise UsageError(f"{source!r} is no folder, no git URL, and no owner/repo of GitHub")
    with tempfile.TemporaryDirectory(prefix="treadle-plugin-") as folder:
        yield Path(folder), asyncio.run(_fetch(url, ref or "HEAD", Path(folder)))


async def _fetch(url: str, ref: str, folder: Path) -> str:
    from treadle.lib.git.run import GitError, run_git
    from treadle.workspace.environment import build_environment

    environment = build_environment(os.environ, sandboxed=False, extra=_GIT_VARIABLES)
    try:
        for words in (
            ("init", "-q", "--template="),
            ("fetch", "-q", "--depth=1", "--no-tags", "--", url, ref),
            ("checkout", "-q", "FETCH_HEAD"),
        ):
            await run_git(folder, *words, environment=environment)
        return (await run_git(folder, "rev-parse", "HEAD", environment=environment)).strip()
    except GitError as error:
        text = _USER_OF_URL.sub("", f"{url} cannot be fetched: {error}")
        raise ConfigError(f"{text}; check its address and your access") from error


def _read_marketplace(folder: Path) -> dict[str, dict[str, Any]]:
    """The plugins of a marketplace by name; none if the folder is not one."""
    file = folder / MARKETPLACE
    content, _ = read_settings_file(file, folder)
    try:
        base = msgspec.convert(content.get("metadata", {}), dict[str, Any]).get("pluginRoot", "")
        entries = msgspec.convert(content.get("plugins", []), list[dict[str, Any]])
        return {str(entry["name"]): {"base": base, **entry} for entry in entries}
    except (msgspec.ValidationError, KeyError) as error:
        raise ConfigError(f"{file}: plugins has to be a list of objects with a name") from error


def _list_entries(source: str, entries: Mapping[str, Mapping[str, Any]]) -> int:
    for name, entry in entries.items():
        line = " ".join(str(entry.get("description") or "").split())
        print_line(escape_invisible(f"{name}  {line[:80]}".rstrip()))
    print_error(f"choose one: treadle plugin add {shlex.quote(source)} NAME")
    return exit_codes.USAGE_ERROR


@contextmanager
def _choosing(plugin: Plugin, folder: Path) -> Iterator[tuple[Path, dict[str, Any], str]]:
    """The folder of the plugin in its source, what a marketplace says about it, its commit."""
    if not plugin.entry:
        yield folder, {}, plugin.commit
        return
    entries = _read_marketplace(folder)
    if plugin.entry not in entries:
        known = ", ".join(entries) or "none"
        raise UsageError(f"there is no plugin {plugin.entry!r} in {plugin.source} ({known})")
    entry = entries[plugin.entry]
    place = entry.get("source")
    if isinstance(place, str):
        base = "" if place.startswith(".") else str(entry["base"])
        yield _find_inside(folder, f"{base or '.'}/{place}"), entry, plugin.commit
        return
    url, path = _parse_git_source(plugin.entry, place)
    with _fetching(url) as (fetched, commit):
        yield _find_inside(fetched, path), entry, commit


def _parse_git_source(name: str, place: object) -> tuple[str, str]:
    """The URL with the commit or branch, and the path in the repository."""
    fields = place if isinstance(place, dict) else {}
    url = str(fields.get("url") or "")
    if fields.get("source") == "github" and _GITHUB.fullmatch(str(fields.get("repo"))):
        url = f"https://github.com/{fields['repo']}"
    if not url.startswith("https://"):
        raise ConfigError(f"the source of {name!r} is no path and no https:// repository: {place}")
    ref = fields.get("sha") or fields.get("ref")
    return (f"{url}#{ref}" if ref else url), str(fields.get("path") or ".")


def _find_inside(folder: Path, path: str) -> Path:
    found = Path(os.path.realpath(folder / path))
    if not found.is_relative_to(os.path.realpath(folder)):
        raise ConfigError(f"the source {path!r} leaves the marketplace; it is not read")
    if not found.is_dir():
        raise ConfigError(f"the marketplace has no folder {path!r}")
    return found


# ------------------------------------------------------------------ copies


def _install(plugin: Plugin, folder: Path, is_agreed: bool) -> int:
    """Copy the plugin, show what the copy brings, and use it if the user agrees."""
    if not _NAME.fullmatch(plugin.name):
        hint = "use letters, digits, '-', '_' and '.': treadle plugin add SOURCE NAME"
        raise UsageError(f"{plugin.name!r} cannot be the name of a plugin; {hint}")
    known = {one.name: one for one in list_plugins()}.get(plugin.name)
    if known is not None and not plugin.hash:
        raise UsageError(f"{plugin.name} is installed: `treadle plugin update {plugin.name}`")
    make_private_folder(get_plugins_folder())
    with tempfile.TemporaryDirectory(dir=get_plugins_folder(), prefix=".new-") as temporary:
        copy = Path(temporary, plugin.name)
        with _choosing(plugin, folder) as (chosen, entry, commit):
            _copy(chosen, copy, entry)
        content = hash_content(copy)
        if content != plugin.hash:
            parts = PluginParts()
            read_parts(plugin, parts, folder=copy)
            parts.problems = [one.replace(str(copy), plugin.name) for one in parts.problems]
            print_line(f"{plugin.name} brings:")
            if not _print_parts(parts):
                raise ConfigError(f"{plugin.source}: there is nothing in it that is used here")
            _ask(plugin, is_agreed)
        elif plugin.is_unchanged:
            print_line(f"{plugin.name} is up to date")
            return exit_codes.SUCCESS
        if plugin.root.exists():
            plugin.root.rename(Path(temporary, "old"))
        copy.rename(plugin.root)
    fields = {"source": plugin.source, "entry": plugin.entry, "commit": commit}

    def record(settings: dict[str, Any]) -> bool:
        settings.setdefault(KEY, {})[plugin.name] = {**fields, "hash": content}
        return True

    update_settings_file(get_record_file(), record)
    print_line(f"{plugin.name} is used from the next session on")
    return exit_codes.SUCCESS


def _copy(source: Path, target: Path, entry: Mapping[str, Any]) -> None:
    target.mkdir()
    for name, kind, content in iterate_files(source, skip=".git"):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "symlink":
            path.symlink_to(os.fsdecode(content))
        else:
            path.write_bytes(content)
            path.chmod(0o755 if kind == "program" else 0o644)
    if entry:  # a marketplace may say more about a plugin than its own manifest
        manifest = target / MANIFEST
        own = read_settings_file(manifest, target)[0]
        manifest.parent.mkdir(exist_ok=True)
        merged = {key: value for key, value in entry.items() if key not in ("source", "base")}
        manifest.write_bytes(msgspec.json.encode({**merged, **own}))


def _ask(plugin: Plugin, is_agreed: bool) -> None:
    """UsageError unless the user agrees to what was printed."""
    if is_agreed:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            f"{plugin.name} is not added: there is no terminal to ask at. Read the lines above, "
            "and add --yes to agree to them"
        )
    if not ask_yes("Use this plugin, as it is now?"):
        raise UsageError(f"{plugin.name} is not added")


def _print_parts(parts: PluginParts) -> bool:
    """Print everything that a plugin brings; whether it is anything."""
    from treadle.hooks.approval import collapse_blanks

    lines = list(_describe_parts(parts))
    notes = [f"note: {note}" for note in (*parts.problems, *parts.unsupported)]
    for line in (*lines, *notes):
        print_line(f"  {escape_invisible(collapse_blanks(line))}")
    return bool(lines)


def _describe_parts(parts: PluginParts) -> Iterator[str]:
    from treadle.hooks.approval import describe_definition, describe_hook, describe_server

    for hook in parts.hooks:
        yield from describe_hook(hook).detail_lines
    for name, server in parts.servers.items():
        yield from describe_server(name, server).detail_lines
    skills = {skill.name: skill.description[:MAX_SHOWN_CHARS] for skill in parts.skills}
    for one in parts.commands:
        kind = "skill" if one.name in skills else "command"
        effect = f": {describe_definition(one.definition)}" if one.definition else ""
        yield f"{kind} /{one.name} ({skills.get(one.name, one.summary)}){effect}"
    for agent in parts.agents:
        mode = f", mode {agent.mode}" if agent.mode else ""
        yield f"agent {agent.name} ({agent.description[:MAX_SHOWN_CHARS]}){mode}"
