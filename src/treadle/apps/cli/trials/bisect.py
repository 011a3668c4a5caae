"""`treadle bisect`: which turn of a session broke something, by its checkpoints.

The files before and after each turn are written into a folder of their own, and a command says
whether they are good; half of what is left is ruled out by each run. No model is called; with
`--ask` it is about answers of the model (bisect_answers.py).
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

import msgspec

from treadle.apps.cli.trials.trial import (
    DEFAULT_MAX_COST,
    CheckNotRun,
    find_first,
    format_output,
    run_check,
    run_trial,
    shorten,
    write_files,
)
from treadle.apps.console.console import UsageError, print_line, report_errors
from treadle.apps.console.exit_codes import ERROR, SUCCESS
from treadle.apps.console.variants import CHECK_RESULTS
from treadle.core.errors import StoreError
from treadle.core.transcript.entries import TurnBegan, UsageRecorded, ViewRewritten
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import plural
from treadle.sessions.history import TurnInfo, find_turn, list_turns
from treadle.sessions.library import Library
from treadle.sessions.log.journal import read_records


class _State(msgspec.Struct, frozen=True):
    """The files at a point; `turn` made them, None: they were changed between two turns."""

    tree: str
    name: str
    turn: TurnInfo | None = None


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="treadle bisect",
        description="Find the turn of a session since which a command fails, by the checkpoints of "
        "the files. The command runs in a folder with these files, without the ignored ones; "
        "TREADLE_FOLDER is the folder of the session. Your files are not touched.",
    )
    parser.add_argument("id", metavar="ID", help="a session")
    parser.add_argument("--check", required=True, metavar="CMD", help="fails if it is broken")
    about = "seconds for each run of the check (default: %(default)g)"
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help=about)
    about = "ask this at points of the session: the check reads the answer on standard input"
    parser.add_argument("--ask", metavar="PROMPT", help=about)
    about = "the first turn after which it is good (default: before turn 1; with --ask after it)"
    parser.add_argument("--from", default="", dest="first", metavar="N", help=about)
    about = "with --ask: ask this model at each point; else the one that the session had there"
    parser.add_argument("--model", default="", help=about)
    about = f"with --ask: for all answers together; that of the settings, or {DEFAULT_MAX_COST:g}"
    parser.add_argument("--max-cost", metavar="USD", help=about)
    options, rest = parser.parse_known_args(arguments)
    if options.ask is not None:
        from treadle.apps.cli.trials.bisect_answers import bisect_answers

        return run_trial("treadle bisect", bisect_answers(options, rest))
    if rest or options.model or options.max_cost is not None:
        parser.error("without --ask there is only --check, --from and --timeout")
    return report_errors("treadle bisect", lambda: asyncio.run(_bisect(options)))


async def _bisect(options: argparse.Namespace) -> int:
    library = Library()
    session_dir = library.find(options.id, by_words=True)
    folder = Path(library.get_summary(session_dir).folder)
    first = find_turn(session_dir, options.first).number if options.first else 0
    states = _list_states(session_dir, first)
    if len(states) < 2:
        after = f" after turn {first}" if first else ""
        raise StoreError(
            f"session {session_dir.name} has no turn{after} with checkpoints that differ"
        )
    checks = 0
    with tempfile.TemporaryDirectory(prefix="treadle-bisect-") as name:
        root = Path(name)

        async def passes(at: int) -> bool:
            nonlocal checks
            checks += 1
            await write_files(library, folder, root, states[at].tree)
            name = states[at].name
            try:
                done = await run_check(folder, root, options.check, options.timeout)
            except CheckNotRun as error:
                raise UsageError(f"the check did not run to its end {name} {error}") from error
            passed = done.exit_code == 0
            how = "" if passed else f" ({done.describe_failure()})"
            said = format_output(done)
            print_line(
                f"{name}: {CHECK_RESULTS[passed]}{how}{'' if passed or checks > 1 else said}"
            )
            return passed

        start = "before the first turn" if not first else f"after turn {first} already"
        found = await find_first(len(states), passes, start)
    if found is None:
        return ERROR
    good, bad = found
    await _describe(library, session_dir, folder, states[good], states[bad], checks)
    return SUCCESS


def _list_states(session_dir: Path, first: int) -> list[_State]:
    """Those whose files differ from the one before, from the files after the turn `first` on."""
    found: list[_State] = []
    for turn in list_turns(session_dir):
        before, after = turn.checkpoint_before, turn.checkpoint_after
        if before:
            found.append(_State(before, f"before turn {turn.number}"))
        if after:
            found.append(_State(after, f"after turn {turn.number}", turn))
        if turn.number <= first:
            found = found[-1:]
    return [one for at, one in enumerate(found) if not at or one.tree != found[at - 1].tree]


async def _describe(
    library: Library, session_dir: Path, folder: Path, good: _State, bad: _State, checks: int
) -> None:
    from treadle.workspace.checkpoints.checkpoints import Checkpoints

    count = plural(checks, "check")
    if bad.turn is None:
        print_line(f"a change that no turn made broke it, {bad.name} ({count})")
    else:
        print_line(f"turn {bad.turn.number} broke it ({count}): {shorten(bad.turn.text)}")
        for line in _list_causes(session_dir, bad.turn):
            print_line(f"    {line}")
    changes = await Checkpoints(folder, library.checkpoint_dir(folder)).diff(good.tree, bad.tree)
    for change in changes:
        print_line(escape_invisible(f"    {change.kind} {change.path}"))


def _list_causes(session_dir: Path, turn: TurnInfo) -> list[str]:
    """What else was new in the turn: another model, or a shortened view."""
    models: list[str] = []
    model = before = ""
    compacted, is_turn = False, False
    for record, entry in read_records(session_dir, kinds=("turn", "usage", "compaction")):
        match entry:
            case TurnBegan(turn_id=turn_id, continues=False):
                if is_turn:
                    break
                is_turn = turn_id == turn.turn_id and record.seq == turn.seq
                before, model = model or before, ""
                compacted = compacted and is_turn
            case UsageRecorded(purpose="turn" | "") if not model:
                model = entry.model
            case ViewRewritten(start=start, stop=stop) if start < stop:
                compacted = True
            case _:
                pass
    if before and model and model != before:
        models.append(f"its model was {model}, before it {before}")
    return [*models, *(["the history was compacted for it"] if compacted else [])]
