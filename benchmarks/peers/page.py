"""Writes the figures of a run into docs/benchmarks.md, as tables and plots.

Only the part between the two marks is written; the rest of the page is by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.peers.plots import draw_plots
from benchmarks.peers.tables import render_tables

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
    tables = render_tables(figures)
    return "\n\n".join([*parts, *tables[:1], *plots, *tables[1:]])
