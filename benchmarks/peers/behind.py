"""Where another contender is ahead of Treadle, with the reason. Computed: none is left out."""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks.peers.contenders import LIBRARIES, OURS
from benchmarks.peers.programs import PROGRAMS

NOISE = 1.05


class Comparison(NamedTuple):
    """One figure, of which less is better, and why another one may need less."""

    text: str
    measure: str
    key: str
    reason: str


HAND = (
    "a loop by hand keeps no log, checks no arguments, asks for no permission, has no budgets and "
    "no events"
)
COMPARISONS = (
    Comparison("CPU of a tool turn", "turns", "cpu", HAND),
    Comparison("time of a tool turn", "turns", "wall", HAND),
    Comparison("memory of a conversation", "turns", "peak_mb", HAND),
    Comparison("CPU of a text delta", "deltas", "cpu", HAND),
    Comparison("time of a text delta", "deltas", "wall", HAND),
    Comparison("time of agents at once", "agents", "wall", HAND),
    Comparison("memory of agents at once", "agents", "peak_mb", HAND),
    Comparison("parallel tools", "parallel", "wall", HAND),
    Comparison("a round in process", "in_process", "cpu", HAND),
    Comparison(
        "recovery from two refused requests", "fails", "wall",
        "Treadle waits for one second and then for two, each time with a random part of up to a "
        "second more; the others wait for about half a second and then for one",
    ),
    Comparison("import", "import", "wall", "it is one HTTP client and nothing else"),
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
    Comparison("memory of a reply", "reply", "peak_mb", "a script by hand loads nothing else"),
    Comparison("shell turns", "shell", "wall", HAND),
    Comparison("continuing a session", "resume", "wall", "it reads less of the session"),
    Comparison("bytes of the prompt", "reply", "largest_bytes", "its prompt is shorter"),
    Comparison("MB installed", "size", "mb", "it has fewer parts"),
)  # fmt: skip


def describe_behind(table: Any, programs: Any) -> str:
    rows = find_behind(table, COMPARISONS, {name: one.title for name, one in LIBRARIES.items()})
    rows += find_behind(programs, OF_PROGRAMS, {name: one.title for name, one in PROGRAMS.items()})
    if not rows and not table.rows and not programs.rows:
        return ""
    if not rows:
        return "### Where Treadle is behind\n\nNowhere in this run."
    text = "In parentheses: what the other one needs, as a share of what Treadle needs."
    return f"### Where Treadle is behind\n\n{text}\n\n" + "\n".join(f"- {row}" for row in rows)


def find_behind(
    table: Any, comparisons: tuple[Comparison, ...], titles: dict[str, str]
) -> list[str]:
    found = []
    for text, measure, key, reason in comparisons:
        ahead: dict[str, float] = {}
        for size in table.sizes(measure):
            ours = table.median(OURS, measure, size, key)
            for name, title in titles.items():
                other = table.median(name, measure, size, key)
                if ours is None or other is None or name.startswith(OURS):
                    continue
                if other * NOISE < ours:
                    ahead[title] = min(other / ours, ahead.get(title, 1.0))
        if ahead:
            names = ", ".join(f"{title} ({share:.2f})" for title, share in ahead.items())
            found.append(f"{text}: {names}. Why: {reason}.")
    return found
