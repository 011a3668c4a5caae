"""Where another contender is ahead of Treadle, with the reason.

Computed from pairs of the same round. Whoever has a median below 1 is listed; from `EQUAL` on, or
where Treadle is ahead in another round, it is called about equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.peers.contenders import LIBRARIES, OURS, title_library
from benchmarks.peers.programs import PROGRAMS

EQUAL = 0.95  # of Treadle's figure
EXPLANATION = (
    "The number after a name is the other's figure divided by Treadle's of the same round: 0.50× "
    "is half as much. It is the median of the rounds, in brackets the lowest and the highest. If "
    "there are several sizes, it is that with the smallest median. “About equal” is a median from "
    f"{EQUAL:.2f} to 1.00, or an interval that reaches 1.00. Where a line has no reason, a loop or "
    "a script by hand is ahead: it keeps no log, checks no arguments, asks for no permission, has "
    "no budgets and no events."
)


class Comparison(NamedTuple):
    """One figure, of which less is better, and why another one may need less. Without a reason
    only what is made by hand needs less: `EXPLANATION` has it."""

    text: str
    measure: str
    key: str
    reason: str = ""


COMPARISONS = (
    Comparison("CPU of a tool turn", "turns", "cpu"),
    Comparison("time of a tool turn", "turns", "wall"),
    Comparison("memory of a conversation", "turns", "peak_mb"),
    Comparison("CPU of a text delta", "deltas", "cpu"),
    Comparison("time of a text delta", "deltas", "wall"),
    Comparison("CPU of agents at once", "agents", "cpu"),
    Comparison("time of agents at once", "agents", "wall"),
    Comparison("memory of agents at once", "agents", "peak_mb"),
    Comparison("memory of each further agent", "agents", "mb_per_agent"),
    Comparison("parallel tools", "parallel", "wall"),
    Comparison("a round in process", "in_process", "cpu"),
    Comparison(
        "recovery from two refused requests", "fails", "wall",
        "Treadle waits for one second and then for two, each time with a random part of up to a "
        "second more; the others wait for about half a second and then for one",
    ),
    Comparison("import", "import", "wall", "it is one HTTP client and nothing else"),
    Comparison(
        "modules after the import", "import", "modules", "it is one HTTP client and nothing else"
    ),
    Comparison("packages installed", "import", "packages", "it has fewer parts"),
    Comparison(
        "MB installed", "import", "mb",
        "Treadle brings ripgrep and the grammar of the shell, which are most of its size",
    ),
)  # fmt: skip
OF_PROGRAMS = (
    Comparison("--version", "version", "wall", "a native program needs no interpreter"),
    Comparison(
        "one reply", "reply", "wall",
        "a native program starts faster than Python, and a script by hand loads no settings",
    ),
    Comparison(
        "CPU of one reply", "reply", "cpu",
        "a native program starts faster than Python, and a script by hand loads no settings",
    ),
    Comparison("memory of a reply", "reply", "peak_mb", "a script by hand loads nothing else"),
    Comparison("shell turns", "shell", "wall"),
    Comparison("continuing a session", "resume", "wall", "it reads less of the session"),
    Comparison("bytes of the prompt", "reply", "largest_bytes", "its prompt is shorter"),
    Comparison("bytes of shell turns", "shell", "bytes", "its prompt is shorter"),
    Comparison("MB with the interpreter", "size", "whole_mb", "it has fewer parts"),
)  # fmt: skip


def describe_behind(table: Any, programs: Any) -> str:
    rows = [describe_comparison(table, one, list(LIBRARIES), title_library) for one in COMPARISONS]
    rows += [
        describe_comparison(programs, one, list(PROGRAMS), title_program) for one in OF_PROGRAMS
    ]
    rows = [row for row in rows if row]
    if not rows and not table.rows and not programs.rows:
        return ""
    if not rows:
        return "### Where Treadle is behind\n\nNowhere in this run."
    lines = "\n".join(f"- {row}" for row in rows)
    return f"### Where Treadle is behind\n\n{EXPLANATION}\n\n{lines}"


def title_program(name: str, measure: str) -> str:
    return PROGRAMS[name].title


def describe_comparison(
    table: Any, comparison: Comparison, names: list[str], title: Callable[[str, str], str]
) -> str:
    text, measure, key, reason = comparison
    parts: dict[str, Any] = {}
    for size in table.sizes(measure):
        for name in names:
            found = table.ratio(name, measure, size, key, OURS)
            if found is None or name.startswith(OURS) or found.median >= 1:
                continue
            if name not in parts or found.median < parts[name].median:
                parts[name] = found
    told = {name: f"{title(name, measure)} {part}" for name, part in parts.items()}
    is_equal = {name: part.median >= EQUAL or part.high >= 1 for name, part in parts.items()}
    ahead = ", ".join(told[name] for name in parts if not is_equal[name])
    equal = ", ".join(told[name] for name in parts if is_equal[name])
    why = f" Why: {reason}." if reason else ""
    sentences = [f"{ahead}.{why}"] if ahead else []
    if equal:
        sentences.append(f"{'About' if ahead else 'about'} equal: {equal}.")
    return f"{text}: {' '.join(sentences)}" if sentences else ""
