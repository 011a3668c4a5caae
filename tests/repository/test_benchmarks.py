"""The comparison with other libraries and programs can be run, and writes its page."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.peers import page, rounds, run, worker
from benchmarks.peers.contenders import LIBRARIES
from benchmarks.peers.environments import LOCKS
from benchmarks.peers.environments import PROGRAMS as NPM_FOLDERS
from benchmarks.peers.programs import PROGRAMS, Place
from benchmarks.peers.results import Results, describe_machine
from benchmarks.peers.server import fill_schema
from benchmarks.peers.tables import render_tables

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def figures() -> dict[str, object]:
    """Real figures of a loop by hand and of Treadle, against the real server."""
    results = Results(describe_machine())
    with run.serve(Path(sys.executable)) as port:
        for name in ("raw_treadle_client", "treadle", "treadle_responses"):
            library = LIBRARIES[name]
            coroutine = worker.measure(library.adapter, library.variant, "turns", 6, port)
            results.add(name, "turns", 6, asyncio.run(coroutine))
        refused = worker.measure("raw_loop", "treadle", "fails", 529, port)
        results.add("raw_treadle_client", "fails", 529, asyncio.run(refused))
    coroutine = worker.measure("treadle_agent", "anthropic", "in_process", 6, 0)
    results.part("growth").add("treadle", "in_process", 6, asyncio.run(coroutine))
    results.part("programs").add("codex", "shell", 20, {"wall": 1.5, "cpu": 1.0})
    results.versions["treadle"] = "0"
    return results.as_json()


def test_every_contender_does_the_same_work(figures: dict[str, dict[str, dict[str, object]]]):
    rows = [row for row in figures["libraries"].values() if "turns" in row]
    measured = [cell for row in rows for cell in row["turns"]["6"]]  # type: ignore[index]
    assert [cell["requests"] for cell in measured] == [7] * 3
    assert [cell["deltas"] for cell in measured] == [6 * 4 + 8] * 3


def test_the_page_has_the_tables_and_plots_of_a_run(tmp_path: Path, figures: dict[str, object]):
    (tmp_path / "benchmarks.md").write_text((ROOT / "docs/benchmarks.md").read_text())
    page.write(figures, tmp_path)
    page.write(figures, tmp_path)
    text = (tmp_path / "benchmarks.md").read_text()
    assert text.count("### Tool turns over HTTP") == 1
    assert "| Treadle, Responses |" in text
    assert "fails: RuntimeError" in text
    assert json.loads((tmp_path / "benchmarks/figures.json").read_text()) == figures
    plots = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert plots == [f"benchmarks/{n}.svg" for n in ("turns", "programs", "growth-rounds")]
    for plot in plots:
        assert ET.parse(tmp_path / plot).getroot().tag.endswith("svg")


def test_the_page_says_where_another_one_is_ahead(figures: dict[str, object]):
    [behind, *_] = render_tables(figures)
    assert re.search(r"loop over Treadle's HTTP client 0\.\d\d×", behind)


def test_another_one_that_is_hardly_ahead_is_listed_as_about_equal():
    seconds = {"treadle": 0.32, "codex": 0.31, "opencode": 0.16}
    programs = {name: {"resume": {"100": [{"wall": wall}]}} for name, wall in seconds.items()}
    [told, *_] = render_tables({"libraries": {}, "programs": programs})
    assert "continuing a session: opencode 0.50×. Why: " in told
    assert "About equal: Codex 0.97×." in told


def test_ratios_divide_figures_of_one_size_and_round():
    def cells(*seconds: float) -> list[dict[str, float]]:
        return [{"cpu": one, "wall": one} for one in seconds]

    too_long: list[dict[str, object]] = [{"failed": "not run"}]
    rows = {
        "treadle": {"turns": {"50": cells(0.1, 0.2, 0.9), "200": cells(0.8)}},
        "raw_aiohttp": {"turns": {"50": cells(0.2, 0.8, 0.9), "200": cells(4.0)}},
        "openai_agents": {"turns": {"50": cells(8.0), "200": too_long}},
    }
    tables = "\n".join(render_tables({"libraries": rows}))
    turns = tables.partition("### Tool turns")[2].splitlines()
    found = [[cell.strip() for cell in line.split("|")[4:7]] for line in turns if "|" in line]
    assert found[0] == ["times measured", "CPU at 50 turns against loop over aiohttp",
                        "largest size that ran"]  # fmt: skip
    assert found[2:5] == [
        ["3, 1", "0.50× (0.25–1.00)", "200"],
        ["3, 1", "1.00×", "200"],
        ["1, –", "40×", "50"],
    ]


def test_contenders_are_measured_in_rounds_and_one_that_failed_no_more():
    order: list[str] = []

    def measure(name: str) -> dict[str, object]:
        order.append(name)
        return {"failed": "it broke"} if name == "broken" else {"wall": 1.0}

    rounds.run_rounds("turns", ["one", "broken", "other"], 5, measure)
    assert order == ["one", "broken", "other", *["one", "other"] * 4]


def test_the_version_of_treadle_is_told_with_its_commit():
    found = run.find_version(Path(sys.executable), "treadle")
    assert re.fullmatch(r"\d[\w.]+( \(commit [0-9a-f]{12}\))?", found)
    assert re.fullmatch(r"\d[\w.]+", run.find_version(Path(sys.executable), "msgspec"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read {path}: No such file or directory"),
        ("{", "{path} is not a file of figures: it is not JSON"),
        ("[]", "{path} is not a file of figures: it has no 'machine'"),
    ],
)
def test_a_file_without_figures_is_refused_in_one_line(
    content: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "figures.json"
    if content is not None:
        path.write_text(content)
    assert run.main(["--from", str(path)]) == 2
    assert capsys.readouterr().err == message.format(path=path) + "\n"


def test_the_page_and_the_help_name_the_measures_in_the_same_words(
    capsys: pytest.CaptureFixture[str],
):
    with pytest.raises(SystemExit):
        run.parse_arguments(["--help"])
    told = capsys.readouterr().out
    text = (ROOT / "docs/benchmarks.md").read_text()
    for name, words in run.MEASURES.items():
        assert f"- `{name}`: {words}\n" in text
        assert f"{name:<12}{words}\n" in told
    assert set(re.findall(r"Measures?: `(\w+)`", text)) == {*run.MEASURES}


def test_any_python_can_run_it():
    """The environments are its own: neither Treadle nor a library has to be installed."""
    argv = [sys.executable, "-S", "-s", "-E", str(ROOT / "benchmarks/peers/run.py"), "--help"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        run.parse_arguments(["--only", "treadle,nothing"])
    told = capsys.readouterr().err
    assert "no 'nothing'; there are: treadle, " in told
    given = run.parse_arguments(["--quick", "--only", "codex", "--measures", "turns"])
    assert (given.quick, given.only, given.measures) == (True, ["codex"], ["turns"])


def test_every_library_has_an_adapter_and_a_lock_that_names_no_place():
    for library in LIBRARIES.values():
        assert (ROOT / "benchmarks/peers/adapters" / f"{library.adapter}.py").exists()
        assert library.lock == "treadle" or (LOCKS / f"{library.lock}.lock").exists()
    for lock in [*LOCKS.glob("*.lock"), *NPM_FOLDERS.glob("*/package-lock.json")]:
        text = lock.read_text()
        assert "://" not in text, lock
        assert "sha256:" in text or "sha512-" in text, lock


def test_the_shell_tool_of_any_program_gets_arguments_that_fit_its_schema():
    command = {"type": "array", "items": {"type": "string"}}
    fields = {"command": command, "timeout_ms": {"type": "integer"}, "mode": {"enum": ["a", "b"]}}
    schema = {"properties": {**fields, "why": {"type": "string"}}, "required": [*fields]}
    assert fill_schema(schema, "ls") == {
        "command": ["bash", "-lc", "ls"],
        "timeout_ms": 10_000,
        "mode": "a",
    }


def test_a_program_gets_settings_in_a_home_of_its_own(tmp_path: Path):
    class Installed:
        def program(self, name: str) -> Path:
            binary = tmp_path / name / "node_modules/@openai/codex-linux-x/vendor/y/bin/codex"
            binary.parent.mkdir(parents=True)
            binary.touch()
            return tmp_path / name

    place = Place(tmp_path / "home", tmp_path / "project", "http://127.0.0.1:1/turns-2_tool-bash")
    started = PROGRAMS["codex"].prepare(Installed(), place)  # type: ignore[arg-type]
    assert started.program[0].startswith(str(tmp_path))
    assert place.url in (tmp_path / "home/.codex/config.toml").read_text()
