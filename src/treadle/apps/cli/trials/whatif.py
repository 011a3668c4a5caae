"""`treadle whatif`: a turn of a session again, by other models or with other prompts, at once.

Each variant is a fork of the session before the turn, in a git worktree with the files of then:
a run of `treadle -p` as a process of its own, with its part of the budget. A check says which are
good; one may be kept as its branch. Nothing of the session or its folder changes.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.apps.cli.session_worktree import WORKTREES_DIR
from treadle.apps.cli.trials.trial import (
    DEFAULT_MAX_COST,
    CheckNotRun,
    load_trial_settings,
    remove_worktree,
    run_agent,
    run_check,
    run_trial,
    write_files,
)
from treadle.apps.console.console import (
    UsageError,
    ask_line,
    print_error,
    print_line,
)
from treadle.apps.console.exit_codes import ERROR, SUCCESS
from treadle.apps.console.variants import BRANCH_PREFIX, HEADS, Variant, list_rows
from treadle.apps.settings.folder_rules import open_trust_store
from treadle.apps.settings.settings import Settings
from treadle.core.errors import ConfigError, TreadleError, UnknownModel
from treadle.core.transcript.usage import Usage
from treadle.lib.files.private_files import find_state_dir
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import plural
from treadle.sessions.history import (
    TurnInfo,
    find_round,
    find_turn,
    fork_at_result,
    list_turns,
)
from treadle.sessions.library import Library
from treadle.workspace.worktrees.session_worktrees import SessionWorktrees
from treadle.workspace.worktrees.worktree_git import open_repository
from treadle.workspace.worktrees.worktrees import BRANCH_FOLDER, Worktree, format_ref

MAX_VARIANTS = 8
ASK = "ask"  # of --keep: also if it is a program that answers


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="treadle whatif",
        description="Run a turn of a session again, by other models or with other prompts, each in "
        "a git worktree with the files before the turn. Further options are those of `treadle -p`.",
    )
    parser.add_argument("id", metavar="ID", help="a session")
    parser.add_argument("--turn", default="-1", metavar="N", help="its number; the last one")
    parser.add_argument("--models", default="", metavar="A,B", help="one variant for each")
    parser.add_argument(
        "--prompts", nargs="+", default=[], metavar="TEXT", help="instead of its own"
    )
    about = "continue the turn from this call, as if its result had been TEXT"
    parser.add_argument("--result", default="", metavar="CALL=TEXT", help=about)
    parser.add_argument("--check", metavar="CMD", help="says whether a variant is good")
    about = "seconds for each run of the check (default: %(default)g)"
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help=about)
    about = f"for all variants together; that of the settings, or {DEFAULT_MAX_COST:g}"
    parser.add_argument("--max-cost", metavar="USD", help=about)
    about = (
        "best, all, none, a number, or `ask`; without it you are asked at a terminal, or all stay"
    )
    parser.add_argument("--keep", metavar="WHICH", help=about)
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    options, rest = parser.parse_known_args(arguments)
    return run_trial("treadle whatif", _try_all(options, rest))


async def _try_all(options: argparse.Namespace, rest: Sequence[str]) -> int:
    library = Library()
    session_dir = library.find(options.id, by_words=True)
    folder = Path(library.get_summary(session_dir).folder)
    settings, limit = load_trial_settings(folder, options.max_cost)
    call_id, separator, _ = options.result.partition("=")
    if options.result and not (call_id and separator):
        raise UsageError("--result is CALL=TEXT: the result of a call of the turn")
    turn = (
        find_round(session_dir, call_id).turn if call_id else find_turn(session_dir, options.turn)
    )
    variants = _list_variants(options, turn)
    _check_models(variants, settings)
    await open_repository(folder)  # its error is of the folder, not of each variant
    worktrees = SessionWorktrees(folder, find_state_dir() / WORKTREES_DIR)
    trial = _Trial(library, session_dir, folder, turn, worktrees, options, rest)
    try:
        async with asyncio.TaskGroup() as group:
            for one in variants:
                group.create_task(trial.run(one, limit / len(variants)))
        _print_variants(variants, is_json=options.json)
        # What was paid for is not thrown away for a check that did not run.
        kept = variants if trial.broken_checks else _choose(variants, options)
    except BaseException:  # a user who stops it wants none of what it has made
        await trial.keep([])
        raise
    await trial.keep(kept)
    if trial.broken_checks:
        name, problem = trial.broken_checks[0]
        raise UsageError(f"the check did not run to its end for {name} {problem}")
    return SUCCESS if any(one.is_good for one in variants) else ERROR


def _list_variants(options: argparse.Namespace, turn: TurnInfo) -> list[Variant]:
    models = [one.strip() for one in options.models.split(",") if one.strip()] or [""]
    if options.result and options.prompts:
        raise UsageError("--result takes the place of a message (--prompts)")
    prompts = (
        [options.result.partition("=")[2]] if options.result else options.prompts or [turn.text]
    )
    count = len(models) * len(prompts)
    if count > MAX_VARIANTS:
        raise UsageError(f"at most {MAX_VARIANTS} variants")
    if options.keep not in (None, ASK) and not _is_choice(options.keep, count):
        raise UsageError(
            f"--keep is best, all, none, ask, or the number of a variant, 1 to {count}"
        )
    tag = secrets.token_hex(2)
    pairs = [(model, prompt) for model in models for prompt in prompts]
    return [
        Variant(f"{BRANCH_PREFIX}{tag}-{number}", model, prompt)
        for number, (model, prompt) in enumerate(pairs, 1)
    ]


def _check_models(variants: Sequence[Variant], settings: Settings) -> None:
    """Refuse a wrong name before any variant costs something."""
    from treadle.models.registry.model_names import resolve_model

    for model in dict.fromkeys(one.model for one in variants if one.model):
        try:
            resolve_model(model, settings.aliases)
        except (UnknownModel, ConfigError) as error:
            raise UsageError(f"--models: {error}") from error


class _Trial(msgspec.Struct):
    library: Library
    session_dir: Path
    folder: Path
    turn: TurnInfo
    worktrees: SessionWorktrees
    options: argparse.Namespace
    rest: Sequence[str]
    made: dict[str, Worktree] = {}
    broken_checks: list[tuple[str, CheckNotRun]] = []

    async def run(self, variant: Variant, max_cost: float) -> None:
        """One that fails does not end the others."""
        try:
            await self._attempt(variant, max_cost)
        except (TreadleError, OSError) as error:
            variant.error = str(error)

    async def _attempt(self, variant: Variant, max_cost: float) -> None:
        worktree = self.made[variant.name] = await self.worktrees.enter(variant.name)
        open_trust_store().copy_decision(self.folder, worktree.root)
        if tree := _find_tree(self.session_dir, self.turn):
            await write_files(self.library, self.folder, worktree.root, tree)
        title = f"Files before turn {self.turn.number} of {self.session_dir.name}"
        began = await _commit(worktree, title, worktree.record.base)
        variant.session = await self._fork(worktree.root)
        report = await self._run_agent(worktree.root, variant, max_cost)
        usage = msgspec.convert(report["usage"], Usage)
        variant.reason, variant.error = report["reason"], report["error"]
        variant.detail, variant.was_sent = report["detail"], usage.requests > 0
        variant.cost, variant.seconds = usage.cost, report["seconds"]
        variant.denied = report["denied"]
        if self.options.check:
            await self._check(worktree.root, variant)
        await worktree.run_git("add", "--all")
        shown = await worktree.run_git("diff", "--cached", "--shortstat", began)
        numbers = [re.search(rf"(\d+) {what}", shown) for what in ("file", "insertion", "deletion")]
        files, added, removed = (int(one.group(1)) if one else 0 for one in numbers)
        variant.files = files
        variant.changes = f"+{added} −{removed} in {plural(files, 'file')}" if files else "none"
        # Without the history: a merge of it would take back what is newer than the turn.
        start = await worktree.run_git("commit-tree", f"{began}^{{tree}}", "-m", title)
        await _commit(worktree, f"What if: {variant.model or variant.prompt[:60]}", start.strip())

    async def _check(self, root: Path, variant: Variant) -> None:
        options = self.options
        try:
            done = await run_check(self.folder, root, options.check, options.timeout)
            variant.passed = done.exit_code == 0
        except CheckNotRun as error:
            self.broken_checks.append((variant.name, error))

    async def _fork(self, root: Path) -> str:
        from treadle.apps.conversation.undo import fork_session

        call_id, _, text = self.options.result.partition("=")
        if not call_id:
            return await fork_session(self.library, self.session_dir, root, self.turn.turn_id)
        library, session_dir = self.library, self.session_dir
        return await fork_at_result(library, session_dir, folder=root, call_id=call_id, text=text)

    async def _run_agent(self, root: Path, variant: Variant, max_cost: float) -> dict[str, Any]:
        words = [*self.rest, *(("--model", variant.model) if variant.model else ())]
        prompt = None if self.options.result else variant.prompt
        return await run_agent(root, variant.session, words, prompt, max_cost)

    async def keep(self, kept: Sequence[Variant]) -> None:
        """Remove the worktrees and branches of the others."""
        changed = {one.name: bool(one.files) for one in kept}
        for name, worktree in self.made.items():
            worktree.release()
            branch = f"{BRANCH_FOLDER}/{name}"
            if name in changed:
                how = f"`git cherry-pick {branch}` takes its changes over"
                print_error(f"kept: {worktree.root}; {how if changed[name] else 'no changes'}")
                continue
            await remove_worktree(worktree)


async def _commit(worktree: Worktree, message: str, parent: str) -> str:
    """Make one commit of all files, whatever the agent committed; the branch is there then."""
    await worktree.run_git("add", "--all")
    tree = (await worktree.run_git("write-tree")).strip()
    made = (await worktree.run_git("commit-tree", tree, "-p", parent, "-m", message)).strip()
    await worktree.run_git("update-ref", format_ref(worktree.name), made)
    return made


def _find_tree(session_dir: Path, turn: TurnInfo) -> str:
    """The files before the turn; "" if no turn has a checkpoint."""
    turns = list_turns(session_dir)
    earlier = [one.checkpoint_after for one in turns if one.seq < turn.seq and one.checkpoint_after]
    later = [one.checkpoint_before for one in turns if one.seq > turn.seq and one.checkpoint_before]
    return turn.checkpoint_before or next(iter([*earlier[-1:], *later[:1]]), "")


def _print_variants(variants: Sequence[Variant], *, is_json: bool) -> None:
    if is_json:
        print(msgspec.json.encode(variants).decode(), flush=True)
        return
    rows = [HEADS, *list_rows(variants)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADS))]
    for row in rows:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        print_line(escape_invisible("  ".join(cells).rstrip()))
    sys.stdout.flush()  # before stderr says what is kept, in one pipe, too


def _is_choice(which: str, count: int) -> bool:
    is_number = which.isascii() and which.isdigit() and 1 <= int(which) <= count
    return is_number or which in ("best", "all", "none")


def _choose(variants: Sequence[Variant], options: argparse.Namespace) -> Sequence[Variant]:
    """All that sent something, unless the user names others: what is not kept is removed."""
    is_asked = options.keep == ASK or (sys.stdin.isatty() and sys.stdout.isatty())
    which = options.keep or "all"
    if options.keep in (None, ASK) and is_asked:
        numbers = "1" if len(variants) == 1 else f"1 to {len(variants)}"
        which = ask_line(f"keep which? [{numbers}, best, all, none] ") or "all"
        while not _is_choice(which, len(variants)):
            which = ask_line(f"{numbers}, best, all or none: ") or "all"
    if which == "none":
        return []
    if which == "best":
        good = sorted((one for one in variants if one.is_good), key=lambda one: one.rank)
        if not good:
            print_error("no variant is good: none is kept")
        return good[:1]
    if which == "all":
        return [one for one in variants if one.was_sent]
    return [variants[int(which) - 1]]
