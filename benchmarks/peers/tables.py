"""The tables of docs/benchmarks.md, from the figures of a run.

A cell is the median of its rounds. A ratio divides two figures of the same round: the table has
the median of these pairs, and the lowest and the highest of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from benchmarks.peers.behind import describe_behind
from benchmarks.peers.contenders import BASELINE, FLOOR, LIBRARIES, OURS, PLAIN, title_library
from benchmarks.peers.programs import ALL_EXTRAS, PROGRAMS
from benchmarks.peers.programs import BASELINE as SCRIPT
from benchmarks.peers.repository_runs import describe_repository

BYTES_PER_TOKEN = 4
AGAINST_BASELINE = f"against {title_library(BASELINE)}"
INSTALLED = "MB installed, without bytecode"
RATIO_NOTE = (
    f"The column “… {AGAINST_BASELINE}” is the CPU of the row, divided by the CPU of the row "
    f"“{title_library(BASELINE)}” of the same size and round: the median of the rounds, and in "
    "brackets the lowest and the highest."
)


class Ratio(NamedTuple):
    """Of pairs: one figure divided by another one of the same round."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        if f"{self.low:.2f}" == f"{self.high:.2f}":
            return times(self.median)
        return f"{times(self.median)} ({times(self.low)[:-1]}–{times(self.high)[:-1]})"


class Table:
    """The rows of one part of the figures, and the medians of their cells."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.rows = rows

    def cells(self, name: str, measure: str, size: object) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.rows.get(name, {}).get(measure, {}).get(str(size), [])
        return found

    def median(self, name: str, measure: str, size: object, key: str) -> float | None:
        cells = self.cells(name, measure, size)
        values = [cell[key] for cell in cells if key in cell and "failed" not in cell]
        return statistics.median(values) if values else None

    def ratio(
        self, name: str, measure: str, size: object, key: str, against: str = BASELINE
    ) -> Ratio | None:
        """The n-th measurements of two contenders are those of the same round."""
        rounds = zip(*(self.cells(one, measure, size) for one in (name, against)), strict=False)
        pairs = [
            one[key] / base[key]
            for one, base in rounds
            if base.get(key) and key in one and not {"failed"} & {*one, *base}
        ]
        return Ratio(statistics.median(pairs), min(pairs), max(pairs)) if pairs else None

    def count(self, name: str, measure: str, size: object) -> int:
        """How often it was measured."""
        return sum("failed" not in cell for cell in self.cells(name, measure, size))

    def failure(self, name: str, measure: str, size: object) -> str:
        found = (cell["failed"] for cell in self.cells(name, measure, size) if "failed" in cell)
        return next(found, "")

    def sizes(self, measure: str) -> list[int]:
        found = {size for row in self.rows.values() for size in row.get(measure, {})}
        return sorted(map(int, found))

    def shared_size(self, measure: str, names: Sequence[str]) -> int | None:
        """The largest size at which each of them that has a figure at all has one."""
        sizes = self.sizes(measure)
        done = [[size for size in sizes if self.count(name, measure, size)] for name in names]
        shared = [size for size in sizes if all(size in one for one in done if one)]
        return shared[-1] if shared else None

    def names(self, measure: str, known: Iterable[str]) -> list[str]:
        return [name for name in known if measure in self.rows.get(name, {})]


def title(name: str, measure: str = "") -> str:
    if name in LIBRARIES:
        return title_library(name, measure)
    return PROGRAMS[name].title


def render_tables(figures: dict[str, Any]) -> list[str]:
    """First where Treadle is behind."""
    table = Table(figures["libraries"])
    programs = Table(figures.get("programs", {}))
    growth = Table(figures.get("growth", {}))
    sections = [
        describe_behind(table, programs),
        render_goals(table),
        render_turns(table),
        render_deltas(table),
        render_agents(table),
        render_parallel(table),
        render_in_process(table),
        render_failures(table),
        render_imports(table),
        *render_programs(programs),
        *render_growth(growth),
        describe_repository(Table(figures.get("repository", {}))),
    ]
    return [section for section in sections if section]


def render_table(
    heading: str, note: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
    if not rows:
        return ""
    lines = [
        f"### {heading}",
        "",
        note,
        "",
        "| " + " | ".join(columns) + " |",
        "|---|" + "--:|" * (len(columns) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(lines)


def show(value: float | None, factor: float = 1.0, digits: int = 2) -> str:
    if value is None:
        return "–"
    scaled = value * factor
    return f"{scaled:,.0f}" if abs(scaled) >= 100 else f"{scaled:.{digits}f}"


def times(value: float) -> str:
    return f"{value:.2f}×" if value < 10 else f"{value:.0f}×"


def show_ratio(ratio: Ratio | None) -> str:
    return "–" if ratio is None else str(ratio)


def show_counts(counts: Iterable[int]) -> str:
    return ", ".join(str(count) if count else "–" for count in counts)


def render_goals(table: Table) -> str:
    rows = [
        [f"a tool turn over HTTP, {size} turns: CPU against {title(FLOOR)}", "1.3×", str(ratio)]
        for size in table.sizes("turns")
        if (ratio := table.ratio(OURS, "turns", size, "cpu", FLOOR))
    ]
    for size in table.sizes("in_process"):
        ours = table.median(OURS, "in_process", size, "cpu")
        plain = table.ratio(PLAIN, "in_process", size, "cpu", OURS)
        if ours and plain:
            micros = f"{ours / size * 1e6:.0f} µs"
            rows.append([f"a round in process, {size} rounds: CPU", "120 µs", micros])
            rows.append([f"a plain function as the tool against an async one, {size} rounds: CPU",
                         "1.2×", str(plain)])  # fmt: skip
    note = "Measures: `turns` and `in_process`."
    return render_table("Goals", note, ["goal", "at most", "measured"], rows)


def render_turns(table: Table) -> str:
    sizes = table.sizes("turns")
    names = table.names("turns", LIBRARIES)
    shared = table.shared_size("turns", names)
    rows = []
    for name in names:
        cells = []
        for size in sizes:
            cpu, wall = (table.median(name, "turns", size, key) for key in ("cpu", "wall"))
            failed = table.failure(name, "turns", size)
            cells.append(failed or f"{show(cpu, 1e3 / size)} / {show(wall, 1e3 / size)}")
        counts = [table.count(name, "turns", size) for size in sizes]
        largest = max((size for size, count in zip(sizes, counts, strict=True) if count), default=0)
        first, last, peak = (
            table.median(name, "turns", largest, key)
            for key in ("first_turns_ms", "last_turns_ms", "peak_mb")
        )
        rows.append([
            title(name), *cells, show_counts(counts),
            show_ratio(table.ratio(name, "turns", shared, "cpu")),
            f"{largest:,}" if largest else "–",
            f"{show(first)} → {show(last)}", show(peak),
        ])  # fmt: skip
    heading = "Tool turns over HTTP: milliseconds a turn, CPU / wall"
    columns = [f"{size} turns" for size in sizes]
    at = f" at {shared} turns" if shared else ""
    why = f" {shared} turns is the largest size that all of them ran." if shared else ""
    more = ["times measured", f"CPU{at} {AGAINST_BASELINE}", "largest size that ran",
            "there: first → last turns, ms", "there: peak MB"]  # fmt: skip
    note = (
        f"Measure: `turns`. {RATIO_NOTE}{why} "
        "The last three columns belong together: the largest size that this library ran, the wall "
        "time of a turn in the first and in the last tenth of that conversation, and its memory. "
        "Compare these only between rows with the same size. “Times measured” has one number for "
        "each size."
    )
    return render_table(heading, note, ["library", *columns, *more], rows)


def render_deltas(table: Table) -> str:
    rows = []
    for size in table.sizes("deltas"):
        for name in table.names("deltas", LIBRARIES):
            cpu, wall, seen = (
                table.median(name, "deltas", size, key) for key in ("cpu", "wall", "deltas")
            )
            if not wall or not cpu:
                rows.append([title(name), table.failure(name, "deltas", size), *["–"] * 4])
                continue
            ratio = table.ratio(name, "deltas", size, "cpu")
            rate = show(size / wall)
            rows.append([title(name), rate, show(cpu / size * 1e6, digits=1), show_ratio(ratio),
                         show(seen), show_counts([table.count(name, "deltas", size)])])  # fmt: skip
    columns = ["library", "deltas a second", "CPU µs a delta", f"CPU {AGAINST_BASELINE}",
               "deltas seen", "times measured"]  # fmt: skip
    note = f"Measure: `deltas`. {RATIO_NOTE}"
    return render_table("A reply of many text deltas", note, columns, rows)


def render_agents(table: Table) -> str:
    rows = []
    for size in table.sizes("agents"):
        for name in table.names("agents", LIBRARIES):
            wall = table.median(name, "agents", size, "wall")
            if not wall:
                rows.append([title(name), table.failure(name, "agents", size), *["–"] * 5])
                continue
            cpu, peak, each = (
                table.median(name, "agents", size, key)
                for key in ("cpu", "peak_mb", "mb_per_agent")
            )
            rows.append([
                title(name), show(size * 5 / wall), show(cpu, 1e3 / size / 5),
                show_ratio(table.ratio(name, "agents", size, "cpu")), show(peak),
                show(each, digits=3), show_counts([table.count(name, "agents", size)]),
            ])  # fmt: skip
    columns = ["library", "turns a second", "CPU ms a turn", f"CPU {AGAINST_BASELINE}",
               "peak MB", "MB an agent", "times measured"]  # fmt: skip
    agents = " and ".join(f"{size:,}" for size in table.sizes("agents"))
    heading = f"{agents} agents at once in one process, five turns each"
    return render_table(heading, f"Measure: `agents`. {RATIO_NOTE}", columns, rows)


def render_parallel(table: Table) -> str:
    rows = [
        [title(name), show(table.median(name, "parallel", 16, "wall"), 1e3, 0)
         if not table.failure(name, "parallel", 16) else table.failure(name, "parallel", 16),
         show_counts([table.count(name, "parallel", 16)])]
        for name in table.names("parallel", LIBRARIES)
    ]  # fmt: skip
    columns = ["library", "ms, two model calls included", "times measured"]
    heading = "Sixteen calls of a tool of 50 ms in one turn"
    return render_table(heading, "Measure: `parallel`.", columns, rows)


def render_in_process(table: Table) -> str:
    sizes = table.sizes("in_process")
    rows = [
        [title(name, "in_process"),
         *(table.failure(name, "in_process", size)
           or show(table.median(name, "in_process", size, "cpu"), 1e6 / size) for size in sizes),
         show_counts(table.count(name, "in_process", size) for size in sizes)]
        for name in table.names("in_process", LIBRARIES)
    ]  # fmt: skip
    columns = ["library", *(f"{size} rounds" for size in sizes), "times measured"]
    note = "Measure: `in_process`. “Times measured” has one number for each size."
    return render_table("In process, without HTTP: CPU µs a round", note, columns, rows)


def render_failures(table: Table) -> str:
    codes = table.sizes("fails")
    rows = []
    for name in table.names("fails", LIBRARIES):
        cells = []
        for code in codes:
            measured = table.cells(name, "fails", code)
            seconds = [cell["wall"] for cell in measured if cell.get("recovers")]
            why = [cell.get("error") or cell.get("failed") for cell in measured]
            if seconds:
                low, high = (f"{found(seconds):.1f}" for found in (min, max))
                often = f", {len(seconds)} of {len(measured)} times" if any(why) else ""
                median = f"{statistics.median(seconds):.1f}"
                cells.append(f"recovers in {median} s ({low}–{high}){often}")
            else:
                cells.append(f"fails: {next(filter(None, why), 'not run')}")
        rows.append([title(name), *cells])
    columns = ["library", *(f"{code}, twice" for code in codes)]
    note = "Measure: `fails`. The median of the rounds, the shortest and the longest."
    return render_table("The first two requests are refused; default settings", note, columns, rows)


def render_imports(table: Table) -> str:
    rows = []
    for name in table.names("import", LIBRARIES):
        if why := table.failure(name, "import", 0):
            rows.append([title(name), why, *["–"] * 4])
            continue
        figures = [
            show(table.median(name, "import", 0, key), factor, digits)
            for key, factor, digits in (
                ("wall", 1e3, 0), ("modules", 1, 0), ("packages", 1, 0), ("mb", 1, 1)
            )
        ]  # fmt: skip
        rows.append([title(name), *figures, show_counts([table.count(name, "import", 0)])])
    columns = ["library", "import ms", "modules", "packages", INSTALLED, "times measured"]
    note = (
        "Measure: `import`. The milliseconds are the median, without those of an interpreter that "
        "does nothing; a loop imports only its client or SDK. MB do not include "
        "compiled bytecode (`.pyc`), which Python writes after the installation; the table in "
        "[install.md](install.md) includes it and is therefore higher."
    )
    return render_table("Import and installation", note, columns, rows)


def render_programs(table: Table) -> list[str]:
    sizes = table.sizes("shell")
    turns = sizes[-1] if sizes else 0
    resumed = table.sizes("resume")
    session = resumed[-1] if resumed else 0
    replies, shells, prompts = [], [], []
    for name in table.names("reply", PROGRAMS):
        reply, cpu, peak = (table.median(name, "reply", 0, k) for k in ("wall", "cpu", "peak_mb"))
        if reply is None:
            replies.append([title(name), table.failure(name, "reply", 0), *["–"] * 5])
            continue
        shell = table.median(name, "shell", turns, "wall")
        each = (shell - reply) / turns if shell is not None and turns else None
        replies.append([
            title(name), show_seconds(table, name, "version", 0),
            show_seconds(table, name, "reply", 0),
            show_ratio(table.ratio(name, "reply", 0, "wall", SCRIPT)), show(cpu), show(peak),
            show_counts(table.count(name, job, 0) for job in ("version", "reply")),
        ])  # fmt: skip
        if table.cells(name, "shell", turns):
            counts = (table.count(name, *job) for job in (("shell", turns), ("resume", session)))
            shells.append([
                title(name), show_seconds(table, name, "shell", turns),
                show_ratio(table.ratio(name, "shell", turns, "wall", SCRIPT)), show(each, 1e3, 1),
                show_seconds(table, name, "resume", session), show_counts(counts),
            ])  # fmt: skip
        one = [table.median(name, "reply", 0, key) for key in ("largest_bytes", "requests")]
        every = [table.median(name, "shell", turns, key) for key in ("bytes", "requests")]
        prompts.append([title(name), *show_requests(*one), *show_requests(*every)])
    against = f"against {title(SCRIPT)}"
    reply_columns = ["program", "--version s", "one reply s", f"reply {against}", "CPU s",
                     "peak MB", "times measured"]  # fmt: skip
    shell_columns = ["program", f"{turns} shell turns s", f"shell turns {against}",
                     "ms a shell turn", f"resume after {session} turns s",
                     "times measured"]  # fmt: skip
    requests = ["program", "largest request of a reply, bytes", "tokens, estimated", "requests",
                f"all requests of {turns} shell turns, bytes", "tokens, estimated",
                "requests"]  # fmt: skip
    ratio = "A ratio has the median of the rounds, and in brackets the lowest and the highest."
    reply_note = (
        f"Measure: `programs`. From start to exit. CPU and memory are those of one reply. {ratio} "
        "“Times measured” has two numbers: --version and one reply."
    )
    shell_note = (
        "Measure: `programs`. From start to exit. Resume is one more reply in a session with "
        f"{session} turns. {ratio} “Times measured” has two numbers: shell turns and resume."
    )
    return [
        render_table("Programs: one reply", reply_note, reply_columns, replies),
        render_table("Programs: shell turns and resume", shell_note, shell_columns, shells),
        render_table("Programs: what is sent", "Measure: `programs`.", requests, prompts),
        render_sizes(table),
    ]


def show_seconds(table: Table, name: str, job: str, size: int) -> str:
    return table.failure(name, job, size) or show(table.median(name, job, size, "wall"))


def render_sizes(table: Table) -> str:
    rows = []
    titles = {OURS: title(OURS), ALL_EXTRAS: "Treadle, `treadle[all]`"}
    titles |= {name: title(name) for name in PROGRAMS if name != "treadle_sandboxed"}
    for name in table.names("size", titles):
        why = table.failure(name, "size", 0)
        keys = ("mb", "bytecode_mb", "interpreter_mb", "whole_mb")
        shown = [show(table.median(name, "size", 0, key), digits=1) for key in keys]
        rows.append([titles[name], *([why, *["–"] * 3] if why else shown)])
    note = (
        "Measure: `programs`. A program in Python needs an interpreter, which many machines have; "
        "the others bring what runs them. Bytecode is what Python writes after the installation."
    )
    columns = ["program", INSTALLED, "MB of bytecode", "MB of the interpreter", "MB in all"]
    return render_table("Programs: installed size", note, columns, rows)


def show_requests(size: float | None, count: float | None) -> list[str]:
    """Bytes, tokens and number of requests."""
    tokens = None if size is None else size / BYTES_PER_TOKEN
    return [show(value, digits=0) for value in (size, tokens, count)]


def render_growth(table: Table) -> list[str]:
    def render(heading: str, columns: list[str], rows: list[list[str]]) -> str:
        note = "Measure: `growth`. Each is the median of the rounds."
        return render_table(heading, note, columns, rows)

    turns = [
        [f"{size:,}", show(table.median(OURS, "in_process", size, "cpu"), 1e6 / size),
         show(table.median(OURS, "in_process", size, "peak_mb"))]
        for size in table.sizes("in_process")
    ]  # fmt: skip
    agents = [
        [f"{size:,}", show(size * 5 / (table.median(OURS, "agents", size, "wall") or 1)),
         show(size * 5 / (table.median(FLOOR, "agents", size, "wall") or 1)),
         show(table.median(OURS, "agents", size, "peak_mb"))]
        for size in table.sizes("agents")
    ]  # fmt: skip
    entries = [
        [f"{size:,}", *(show(table.median(OURS, kind, size, key), factor, digits)
                        for kind in ("entries", "compacted")
                        for key, factor, digits in (("cpu", 1e3, 1), ("mb", 1, 1)))]
        for size in table.sizes("entries")
    ]  # fmt: skip
    return [
        render("Growth: rounds of one session, in process", ["rounds", "CPU µs a round", "peak MB"],
               turns),
        render("Growth: agents at once, over HTTP",
               ["agents", "turns a second", f"turns a second, {title(FLOOR)}", "peak MB"], agents),
        render("Growth: entries of a session that is continued with one reply",
               ["entries", "CPU ms", "MB", "CPU ms, compacted", "MB, compacted"], entries),
    ]  # fmt: skip
