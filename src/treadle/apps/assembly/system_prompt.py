"""What the model is told besides the conversation: the system prompt, and notices.

    system prompt   the sections of context/prompt and the memory files; the same in every host and
                    mode, so that it stays in the provider's cache
    reminders       what changed since: files, memory files, the mode (context/reminders)
    environment     once, with the first message: branch, changes, last commits
    git             the same after a compaction, and which changes are not of this session
    sandbox         once, if commands run without the sandbox that the instructions speak of

In a folder that is not trusted git is not run, because the settings of a repository can name
programs; then only the branch is told. Stages of stages.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.apps.assembly.lazy import LazyReminders, LazyWorkspace
from treadle.apps.assembly.parts import AgentParts
from treadle.apps.settings.folder_rules import make_read_check
from treadle.apps.settings.output_styles import choose_output_style
from treadle.apps.settings.settings import SETTINGS_BY_NAME, treadle_home
from treadle.context.compaction.pins import list_changed_files
from treadle.context.memory_files import (
    CURSOR_AND_GEMINI_FILES,
    KEPT_LINES,
    PROJECT_FILES,
    find_memory_root,
    find_user_files,
)
from treadle.context.prompt import (
    SystemPrompt,
    build_prompt,
    describe_commands,
    describe_environment,
    find_family,
    read_section,
)
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.errors import ConfigError, WorkspaceError
from treadle.core.transcript.items import NoticeItem, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.core.untrusted_files import read_text
from treadle.lib.git.repository import find_own_repository, find_repository, read_head
from treadle.lib.text.redaction import redact
from treadle.lib.text.text import plural

if TYPE_CHECKING:
    from treadle.context.memory import Memory

MAX_CHANGES = 20
MAX_PROMPT_BYTES = 1 << 20
NO_COMMITS = "No commits yet on "  # what `git status` says instead of a branch
MAX_COMMITS = 5
MAX_LINE_CHARS = 120
GIT_SECONDS = 2.0
MAX_FIRST_ITEMS = 8  # the first message, and what hooks and reminders add to it


def write_prompt(parts: AgentParts) -> None:
    """The prompt, without secrets, and the memory in it if there is any."""
    settings, is_small = parts.settings, parts.is_small
    parts.commands = describe_commands(settings.sandbox, network=settings.network)
    parts.check_read = make_read_check(parts.folder, parts.rules)
    parts.memory = None if is_small else _load_memory(parts)
    # Other models get the mode as a notice, so that a change of it keeps the prompt as it is.
    plan = read_section("plan") if settings.permission_mode == "plan" and is_small else ""
    added = _read_text_setting(parts, "append_system_prompt")
    appended = (plan, added, parts.given.instructions)
    style = choose_output_style(
        settings.output_style,
        parts.folder,
        trusted=parts.trust.is_trusted,
        notes=parts.notes,
        must_exist=settings.origin("output_style") == SETTINGS_BY_NAME["output_style"].option,
    )
    prompt = build_prompt(
        family=find_family(parts.model.card),
        environment=describe_place(parts, parts.folder, parts.commands),
        memory=parts.memory.text if parts.memory is not None else "",
        skills=parts.skills_section,
        user_text="\n\n".join(text for text in appended if text.strip()),
        for_small_model=is_small,
        own_text=_read_text_setting(parts, "system_prompt"),
        style=f"# Output style: {style.name}\n{style.body}" if style is not None else "",
    )
    replace, secrets = msgspec.structs.replace, parts.secrets
    sections = [replace(one, text=redact(secrets, one.text)) for one in prompt.sections]
    parts.prompt = SystemPrompt(tuple(sections))


def describe_place(parts: AgentParts, folder: Path, commands: str) -> str:
    """The environment of an agent in this folder; `commands` as `describe_commands` says it."""
    added = [Path(one) for one in parts.settings.add_dir]
    text = describe_environment(folder, added_folders=added, commands=commands)
    return redact(parts.secrets, text)


def _read_text_setting(parts: AgentParts, name: str) -> str:
    """A text of the settings, or that of the file which it names: `@PATH`."""
    text: str = getattr(parts.settings, name)
    if not text.startswith("@"):
        return text
    file = Path(parts.folder, Path(text[1:]).expanduser())
    try:
        return read_text(file, MAX_PROMPT_BYTES, within=None)
    except OSError as error:
        origin = parts.settings.origin(name)
        raise ConfigError(f"{origin}: {file}: {error.strerror or error}") from error


def _load_memory(parts: AgentParts) -> Memory | None:
    """Memory files of the project are used only in a trusted folder; those of the user always."""
    folder, trusted, more = parts.folder, parts.trust.is_trusted, parts.settings.cursor_gemini_files
    home, root = Path.home(), find_memory_root(folder)
    names = (*PROJECT_FILES, *(CURSOR_AND_GEMINI_FILES if more else ()))
    down = folder.relative_to(root).parts
    folders = [root.joinpath(*down[:count]) for count in range(len(down) + 1)]
    present = [one / name for one in folders for name in names if (one / name).exists()]
    if present and not trusted:
        listed = ", ".join(str(file.relative_to(root)) for file in present)
        parts.notes.append(f"{listed} ignored: the folder is not trusted (run `treadle trust`)")
    own = any(file.path.exists() for file in find_user_files(home, root, more=more))
    lines = _load_lines(parts)
    if not (present and trusted) and not own and not lines:
        return None
    memory = load_memory(folder, parts.check_read, trusted=trusted, more=more)
    parts.notes += memory.problems
    return msgspec.structs.replace(memory, lines=lines)


def _load_lines(parts: AgentParts) -> str:
    """The lines that the agent keeps and the user accepted."""
    if not parts.settings.memory or not os.path.lexists(treadle_home() / KEPT_LINES):
        return ""
    from treadle.apps.settings.kept_memory import open_memory_lines
    from treadle.context.memory_lines import format_for_prompt

    try:
        text, problem = format_for_prompt(open_memory_lines(parts.folder).list_lines())
    except (ConfigError, OSError) as error:
        text, problem = "", f"memory is not used: {error}"
    parts.notes += [problem] if problem else []
    return text


def load_memory(
    folder: Path, check_read: Callable[[Path], str], *, trusted: bool, more: bool
) -> Memory:
    """The memory files as they are now."""
    from treadle.context.memory import read_memory, read_user_memory

    home, root = Path.home(), find_memory_root(folder)
    if not trusted:
        return read_user_memory(root, home, more=more)
    return read_memory(root, folder, home, more=more, check_read=check_read)


def add_reminders(parts: AgentParts) -> None:
    if parts.is_small:
        return
    editor = parts.host_workspace
    reminders = LazyReminders(
        parts.builtin,
        parts.folder,
        parts.memory,
        lambda: parts.policy.mode,
        trusted=parts.trust.is_trusted,
        secrets=parts.secrets,
        is_attended=parts.is_interactive or parts.suspend,  # answers now, or when resuming
        find_seen_digest=editor.find_seen_digest if editor is not None else None,
        more_memory=parts.settings.cursor_gemini_files,
        check_read=parts.check_read,
    )
    notices = EnvironmentNotices(parts.folder, parts.workspace, trusted=parts.trust.is_trusted)
    parts.mutators += [reminders, notices]


# ------------------------------------------------------------------ environment


class EnvironmentNotices:
    """A Mutator before each model call."""

    name = "environment"
    for_children = False
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    def __init__(self, folder: Path, workspace: LazyWorkspace, *, trusted: bool) -> None:
        self._folder = folder
        self._workspace = workspace
        self._trusted = trusted
        self._is_corrected = False

    async def mutate(self, context: MutationContext) -> Transcript | None:
        view, due = context.transcript, ""
        if _is_first_request(view):
            due = await describe_git(self._folder, trusted=self._trusted)
        notices = [NoticeItem(due, "environment")] if due else []
        if _is_compacted(view):
            changed = frozenset(list_changed_files(view))
            now = await describe_git(self._folder, trusted=self._trusted, changed=changed)
            notices += [NoticeItem(now, "git")] if now else []
        problem = "" if self._is_corrected else self._workspace.sandbox_problem
        if problem:
            self._is_corrected = True
            text = f"Commands run without a sandbox ({problem}), with the rights of the user."
            notices.append(NoticeItem(text, "sandbox"))
        return Transcript([*view, *notices]) if notices else None


def _is_first_request(view: Transcript) -> bool:
    if len(view) > MAX_FIRST_ITEMS or not all(isinstance(i, UserItem | NoticeItem) for i in view):
        return False
    return not any(isinstance(item, NoticeItem) and item.kind == "environment" for item in view)


def _is_compacted(view: Transcript) -> bool:
    """Whether git has to be told after a compaction. A view is looked at once."""
    first = view[0] if len(view) else None
    if not isinstance(first, NoticeItem) or first.kind != "compaction":
        return False
    was_told = view.cache.get("assembly.git", False)
    view.cache["assembly.git"] = True
    return not was_told and not any(isinstance(i, NoticeItem) and i.kind == "git" for i in view)


async def describe_git(
    folder: Path, *, trusted: bool, changed: frozenset[str] | None = None
) -> str:
    """Branch, changes and last commits of the repository that the folder is in; "" without one.
    `changed` are the files that the session changed, if it did not just begin."""
    when = "when the session began" if changed is None else "now"
    top = find_repository(folder)
    if top is None:
        return ""
    if not trusted:
        repository = find_own_repository(top / ".git")
        branch = _cut(read_head(repository)[0]) if repository is not None else ""
        return f"Git, {when}: branch {branch}." if branch else ""
    from treadle.workspace.worktrees.worktree_git import run_git  # starts a process

    status = ("--no-optional-locks", "status", "--porcelain", "--branch")
    log = ("log", f"-{MAX_COMMITS}", "--format=%h %s")
    try:
        async with asyncio.timeout(GIT_SECONDS):
            shown = await asyncio.gather(
                run_git(folder, *status), run_git(folder, *log), return_exceptions=True
            )
    except TimeoutError:
        return ""
    texts = [one if isinstance(one, str) else "" for one in shown]
    if any(not isinstance(one, str | WorkspaceError) for one in shown) or not texts[0]:
        return ""
    lines = texts[0].splitlines()
    own = [line for line in lines[1:] if str(top / _get_path(line)) in (changed or ())]
    return _format_git(when, lines, own, texts[1].splitlines())


def _get_path(status_line: str) -> str:
    return status_line[3:].rpartition(" -> ")[2]


def _format_git(when: str, status: list[str], own: list[str], commits: list[str]) -> str:
    """`own` are the lines of the status about changes of the session."""
    branch, changes = status[0].removeprefix("## "), [x for x in status[1:] if x not in own]
    if branch.startswith(NO_COMMITS):
        branch = f"{branch.removeprefix(NO_COMMITS)}, which has no commits yet"
    lines = [f"Git, {when}: branch {_cut(branch)}."]
    if own:
        lines += ["Changed in this session, not committed:", *map(_cut, own[:MAX_CHANGES])]
    if changes:
        count = plural(len(changes), "change")
        lines.append(f"{count} of the user, not committed; do not revert them:")
        lines += [_cut(change) for change in changes[:MAX_CHANGES]]
        left = len(changes) - MAX_CHANGES
        lines += [f"... and {left} more"] if left > 0 else []
    else:
        lines.append(f"No {'other ' if own else ''}uncommitted changes.")
    lines += ["Last commits:", *map(_cut, commits)] if commits else []
    return "\n".join(lines)


def _cut(line: str) -> str:
    text = line.encode("utf-8", "replace").decode()
    return text if len(text) <= MAX_LINE_CHARS else text[:MAX_LINE_CHARS] + "..."
