"""The plots of docs/benchmarks.md, from the figures of a run."""

from __future__ import annotations

from typing import Any

from benchmarks.peers import svg_plot
from benchmarks.peers.contenders import CHARTED, FLOOR, OURS
from benchmarks.peers.programs import CHARTED as CHARTED_PROGRAMS
from benchmarks.peers.tables import Table, title


def draw_plots(figures: dict[str, Any]) -> dict[str, str]:
    table, growth = Table(figures["libraries"]), Table(figures.get("growth", {}))
    programs = Table(figures.get("programs", {}))
    plots = {}
    if sizes := table.sizes("turns"):
        series = {
            title(name): collect(table, name, "turns", sizes, "cpu", lambda size: 1e3 / size)
            for name in table.names("turns", CHARTED)
        }
        plots["turns"] = svg_plot.draw_lines(
            "CPU of a tool turn over HTTP", "turns of the conversation", "ms a turn", series,
            title(OURS),
        )  # fmt: skip
    if sizes := programs.sizes("shell"):
        values = {
            title(name): wall
            for name in programs.names("shell", CHARTED_PROGRAMS)
            if (wall := programs.median(name, "shell", sizes[-1], "wall")) is not None
        }
        heading = f"{sizes[-1]} shell turns, from start to exit"
        plots["programs"] = svg_plot.draw_bars(heading, "s", values, title(OURS))
    return plots | draw_growth_plots(growth)


def draw_growth_plots(table: Table) -> dict[str, str]:
    plots = {}
    if sizes := table.sizes("in_process"):
        points = collect(table, OURS, "in_process", sizes, "cpu", lambda size: 1e6 / size)
        plots["growth-rounds"] = svg_plot.draw_lines(
            "CPU of a round as a session grows", "rounds", "µs a round", {title(OURS): points},
            title(OURS),
        )  # fmt: skip
    if sizes := table.sizes("agents"):
        series: dict[str, svg_plot.Points] = {
            title(name): [
                (size, size * 5 / wall)
                for size in sizes
                if (wall := table.median(name, "agents", size, "wall"))
            ]
            for name in (OURS, FLOOR)
        }
        plots["growth-agents"] = svg_plot.draw_lines(
            "Agents at once in one process", "agents", "turns a second", series, title(OURS)
        )
    if sizes := table.sizes("entries"):
        series = {
            label: collect(table, OURS, kind, sizes, "cpu", lambda _: 1e3)
            for kind, label in (("entries", "whole"), ("compacted", "compacted"))
        }
        plots["growth-entries"] = svg_plot.draw_lines(
            "Continuing a session with one reply", "entries", "CPU ms", series, "whole"
        )
    return plots


def collect(
    table: Table, name: str, measure: str, sizes: list[int], key: str, factor: Any
) -> list[tuple[float, float]]:
    values = ((size, table.median(name, measure, size, key)) for size in sizes)
    return [(size, value * factor(size)) for size, value in values if value is not None]
