"""Writes the figures of a run into docs/benchmarks.md, as tables and plots.

Only the part between the two marks is written; the rest of the page is by hand.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.peers.contenders import BASELINE
from benchmarks.peers.plots import draw_plots
from benchmarks.peers.tables import Table, render_table, render_tables, show, title

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
FOLDER = "benchmarks"


def write(figures: dict[str, Any], docs: Path) -> None:
    """The page, its plots and the figures themselves."""
    folder = docs / FOLDER
    folder.mkdir(exist_ok=True)
    for name, plot in draw_plots(figures).items():
        (folder / f"{name}.svg").write_text(plot)
    (folder / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    path = docs / "benchmarks.md"
    path.write_text(replace_figures(path.read_text(), render_page(figures)))


def replace_figures(text: str, generated: str) -> str:
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{generated}\n{END}{after}"


def render_page(figures: dict[str, Any]) -> str:
    machine = figures["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    parts = [
        f"Measured on {machine['date']}: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gb']} GB, {machine['system']}, Python {machine['python']}; "
        f"the whole run took {machine.get('minutes', '?')} minutes.",
        f"Versions: {versions}.",
    ]
    if figures["missing"]:
        missing = "; ".join(figures["missing"].values())
        parts.append(f"Not measured here: {missing}.")
    plots = [f"![{name}]({FOLDER}/{name}.svg)" for name in draw_plots(figures)]
    return "\n\n".join([*parts, *plots, describe_noise(figures), render_tables(figures)])


def describe_noise(figures: dict[str, Any]) -> str:
    """How far apart the same measurement of the loop over aiohttp was within this run."""
    table = Table(figures["libraries"])
    rows = []
    for measure in ("turns", "deltas", "agents"):
        for size in table.sizes(measure):
            base = [cell.get("cpu") for cell in table.cells(BASELINE, measure, size)]
            for name in table.rows:
                base += [cell.get("base_cpu") for cell in table.cells(name, measure, size)]
            values = sorted(value * 1e3 for value in base if value)
            if len(values) > 3:
                low, high = values[0], values[-1]
                shown = [show(value) for value in (low, statistics.median(values), high)]
                work, count = f"{size:,} {measure}", str(len(values))
                rows.append([work, count, *shown, f"{high / low:.1f}×"])
    name = title(BASELINE)
    heading = f"Noise: {name}, the same work many times"
    note = (
        f"The {name} was measured for its own row, and once more before each measurement of "
        "another library. Its work was the same each time, its CPU time was not. A figure that "
        "was measured only once can be wrong by as much."
    )
    columns = ["work", "times measured", "lowest, CPU ms", "median", "highest", "highest / lowest"]
    return render_table(heading, note, columns, rows) or "Noise: too few measurements."
