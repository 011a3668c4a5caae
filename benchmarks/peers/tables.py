"""The tables of docs/benchmarks.md, from the figures of a run.

A cell is the median of its repeats, a ratio the median over the pairs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.peers.behind import describe_behind
from benchmarks.peers.contenders import BASELINE, FLOOR, LIBRARIES, OURS
from benchmarks.peers.programs import PROGRAMS

BYTES_PER_TOKEN = 4


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

    def ratio(self, name: str, measure: str, size: object, key: str) -> float | None:
        base = f"base_{key}"
        cells = [cell for cell in self.cells(name, measure, size) if cell.get(base)]
        values = [cell[key] / cell[base] for cell in cells if key in cell]
        return statistics.median(values) if values else None

    def failure(self, name: str, measure: str, size: object) -> str:
        found = (cell["failed"] for cell in self.cells(name, measure, size) if "failed" in cell)
        return next(found, "")

    def sizes(self, measure: str) -> list[int]:
        found = {size for row in self.rows.values() for size in row.get(measure, {})}
        return sorted(map(int, found))

    def names(self, measure: str, known: Iterable[str]) -> list[str]:
        return [name for name in known if measure in self.rows.get(name, {})]


def title(name: str) -> str:
    if name in LIBRARIES:
        return LIBRARIES[name].title
    return PROGRAMS[name].title


def render_tables(figures: dict[str, Any]) -> str:
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
    ]
    return "\n\n".join(section for section in sections if section)


def render_table(heading: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [
        f"### {heading}",
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


def times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×" if value < 10 else f"{value:.0f}×"


def render_goals(table: Table) -> str:
    rows = []
    for size in table.sizes("turns"):
        ours, floor = (table.median(name, "turns", size, "cpu") for name in (OURS, FLOOR))
        if ours and floor:
            rows.append([f"a tool turn over HTTP, {size} turns: CPU against a loop by hand over "
                         "Treadle's HTTP client", "1.3×", times(ours / floor)])  # fmt: skip
    for size in table.sizes("plain_tool"):
        ours = table.median(OURS, "in_process", size, "cpu")
        plain = table.median(OURS, "plain_tool", size, "cpu")
        if ours and plain:
            micros = f"{ours / size * 1e6:.0f} µs"
            rows.append([f"a round in process, {size} rounds: CPU", "120 µs", micros])
            rows.append([f"a plain function as the tool against an async one, {size} rounds: CPU",
                         "1.2×", times(plain / ours)])  # fmt: skip
    return render_table("Goals", ["goal", "at most", "measured"], rows)


def render_turns(table: Table) -> str:
    sizes = table.sizes("turns")
    rows = []
    for name in table.names("turns", LIBRARIES):
        cells = []
        for size in sizes:
            cpu, wall = (table.median(name, "turns", size, key) for key in ("cpu", "wall"))
            failed = table.failure(name, "turns", size)
            cells.append(failed or f"{show(cpu, 1e3 / size)} / {show(wall, 1e3 / size)}")
        done = [size for size in sizes if table.median(name, "turns", size, "cpu")]
        middle = 200 if 200 in done else done[-1] if done else 0
        first, last, peak = (
            table.median(name, "turns", done[-1] if done else 0, key)
            for key in ("first_turns_ms", "last_turns_ms", "peak_mb")
        )
        ratio = times(table.ratio(name, "turns", middle, "cpu")) if name != BASELINE else "1.00×"
        rows.append([title(name), *cells, ratio, f"{show(first)} → {show(last)}", show(peak)])
    heading = "Tool turns over HTTP: milliseconds a turn, CPU / wall"
    columns = [f"{size} turns" for size in sizes]
    more = ["CPU against the loop by hand", "first → last turns, ms", "peak MB"]
    return render_table(heading, ["library", *columns, *more], rows)


def render_deltas(table: Table) -> str:
    rows = []
    for size in table.sizes("deltas"):
        for name in table.names("deltas", LIBRARIES):
            cpu, wall, seen = (
                table.median(name, "deltas", size, key) for key in ("cpu", "wall", "deltas")
            )
            if not wall or not cpu:
                rows.append([title(name), table.failure(name, "deltas", size), "–", "–", "–"])
                continue
            ratio = table.ratio(name, "deltas", size, "cpu") if name != BASELINE else 1.0
            rate = show(size / wall)
            rows.append([title(name), rate, show(cpu / size * 1e6, digits=1), times(ratio),
                         show(seen)])  # fmt: skip
    columns = ["library", "deltas a second", "CPU µs a delta", "CPU against the loop by hand",
               "deltas seen"]  # fmt: skip
    return render_table("A reply of many text deltas", columns, rows)


def render_agents(table: Table) -> str:
    rows = []
    for size in table.sizes("agents"):
        for name in table.names("agents", LIBRARIES):
            wall = table.median(name, "agents", size, "wall")
            if not wall:
                rows.append([title(name), table.failure(name, "agents", size), "–", "–", "–"])
                continue
            cpu, peak, each = (
                table.median(name, "agents", size, key)
                for key in ("cpu", "peak_mb", "mb_per_agent")
            )
            rows.append([title(name), show(size * 5 / wall), show(cpu, 1e3 / size / 5), show(peak),
                         show(each, digits=3)])  # fmt: skip
    columns = ["library", "turns a second", "CPU ms a turn", "peak MB", "MB an agent"]
    return render_table("Many agents at once in one process, five turns each", columns, rows)


def render_parallel(table: Table) -> str:
    rows = [
        [title(name), show(table.median(name, "parallel", 16, "wall"), 1e3, 0)
         if not table.failure(name, "parallel", 16) else table.failure(name, "parallel", 16)]
        for name in table.names("parallel", LIBRARIES)
    ]  # fmt: skip
    columns = ["library", "ms, two model calls included"]
    return render_table("Sixteen calls of a tool of 50 ms in one turn", columns, rows)


def render_in_process(table: Table) -> str:
    sizes = table.sizes("in_process")
    rows = [
        [title(name), *(show(table.median(name, "in_process", size, "cpu"), 1e6 / size)
                        for size in sizes)]
        for name in table.names("in_process", LIBRARIES)
    ]  # fmt: skip
    columns = ["library", *(f"{size} rounds" for size in sizes)]
    return render_table("In process, without HTTP: CPU µs a round", columns, rows)


def render_failures(table: Table) -> str:
    codes = table.sizes("fails")
    rows = []
    for name in table.names("fails", LIBRARIES):
        cells = []
        for code in codes:
            [cell, *_] = table.cells(name, "fails", code) or [{}]
            if cell.get("recovers"):
                cells.append(f"recovers in {cell['wall']:.1f} s")
            else:
                cells.append(f"fails: {cell.get('error') or cell.get('failed', 'not run')}")
        rows.append([title(name), *cells])
    columns = ["library", *(f"{code}, twice" for code in codes)]
    return render_table("The first two requests are refused; default settings", columns, rows)


def render_imports(table: Table) -> str:
    rows = []
    for name in table.names("import", LIBRARIES):
        [cell, *_] = table.cells(name, "import", 0)
        net = (cell["wall"] - cell["base_wall"]) * 1e3
        rows.append([title(name), show(net, digits=0), str(cell["modules"]), str(cell["packages"]),
                     show(cell["mb"], digits=1)])  # fmt: skip
    columns = ["library", "import ms", "modules", "packages", "MB installed"]
    return render_table("Import and installation", columns, rows)


def render_programs(table: Table) -> list[str]:
    sizes = table.sizes("shell")
    turns = sizes[-1] if sizes else 0
    resumed = table.sizes("resume")
    session = resumed[-1] if resumed else 0
    speed, prompts = [], []
    for name in table.names("reply", PROGRAMS):
        reply, cpu, peak = (table.median(name, "reply", 0, k) for k in ("wall", "cpu", "peak_mb"))
        if reply is None:
            speed.append([title(name), table.failure(name, "reply", 0), *["–"] * 7])
            continue
        shell = table.median(name, "shell", turns, "wall")
        each = (shell - reply) / turns if shell is not None and turns else None
        speed.append([
            title(name), show(table.median(name, "version", 0, "wall")), show(reply), show(cpu),
            show(peak), show(shell), show(each, 1e3, 1),
            show(table.median(name, "resume", session, "wall")),
            show(table.median(name, "size", 0, "mb")),
        ])  # fmt: skip
        one = [table.median(name, "reply", 0, key) for key in ("largest_bytes", "requests")]
        every = [table.median(name, "shell", turns, key) for key in ("bytes", "requests")]
        prompts.append([title(name), *show_requests(*one), *show_requests(*every)])
    columns = ["program", "--version s", "one reply s", "CPU s", "peak MB",
               f"{turns} shell turns s", "ms a shell turn",
               f"resume after {session} turns s", "MB installed"]  # fmt: skip
    requests = ["program", "largest request of a reply, bytes", "tokens, estimated", "requests",
                f"all requests of {turns} shell turns, bytes", "tokens, estimated",
                "requests"]  # fmt: skip
    return [
        render_table("Programs, from start to exit", columns, speed),
        render_table("Programs: what is sent", requests, prompts),
    ]


def show_requests(size: float | None, count: float | None) -> list[str]:
    """Bytes, tokens and number of requests."""
    tokens = None if size is None else size / BYTES_PER_TOKEN
    return [show(value, digits=0) for value in (size, tokens, count)]


def render_growth(table: Table) -> list[str]:
    def render(heading: str, columns: list[str], rows: list[list[str]]) -> str:
        return render_table(heading, columns, rows)

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
               ["agents", "turns a second", "of the loop by hand over the same client", "peak MB"],
               agents),
        render("Growth: entries of a session that is continued with one reply",
               ["entries", "CPU ms", "MB", "CPU ms, compacted", "MB, compacted"], entries),
    ]  # fmt: skip
