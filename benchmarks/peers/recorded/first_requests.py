"""What each program sends first, in bytes: system prompt, tools, messages.

    python benchmarks/peers/recorded/first_requests.py            prints the table
    python benchmarks/peers/recorded/first_requests.py --write    keeps it for the docs

Each program, in the version of its lock, gets the same prompt in an empty git repository, with a
home folder of its own that has no settings. The model is that of the page; opencode gets one that
it does not know. The last column is the largest request of a run with twenty shell commands.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec

HERE = Path(__file__).resolve().parent
sys.path[:] = [path for path in sys.path if Path(path).resolve() != HERE]
sys.path.insert(0, str(HERE.parents[2]))

from benchmarks.long_session import execute  # noqa: E402
from benchmarks.peers.environments import PROGRAMS as NPM_FOLDERS  # noqa: E402
from benchmarks.peers.environments import Environments  # noqa: E402
from benchmarks.peers.programs import PROGRAMS, Place, measure  # noqa: E402
from benchmarks.peers.recorded.program_calls import list_tools, translate  # noqa: E402
from benchmarks.peers.recorded.recorder import (  # noqa: E402
    Recorded,
    Recorder,
    RequestParts,
    serve,
    split_sizes,
)
from benchmarks.peers.run import default_cache  # noqa: E402
from treadle.testing.provider import FakeCall, FakeReply  # noqa: E402

CLAUDE, GPT = "claude-opus-5-5", "gpt-6.1-sol"
RUNS = (
    ("treadle", f"anthropic/{CLAUDE}"),
    ("treadle", f"openai/{GPT}"),
    ("opencode", ""),
    ("codex", GPT),
    ("claude", CLAUDE),
)
SHELL_TURNS = 20
FIGURES = HERE / "first_requests.json"
HEADING = """\
| program | model | system prompt | tools | messages | first request | after 20 commands |
|---|---|--:|--:|--:|--:|--:|"""


class Row(NamedTuple):
    title: str
    model: str
    first: RequestParts
    after_commands: int  # the largest request of the run with these


def find_version(name: str) -> str:
    """The version in the lock; nothing for Treadle itself."""
    if not (NPM_FOLDERS / name).exists():
        return ""
    [version] = json.loads((NPM_FOLDERS / name / "package.json").read_text())[
        "dependencies"
    ].values()
    return f" {version}"


class ShellTurns:
    """Answers with a shell command for each result that is still missing, then with a text."""

    def __init__(self) -> None:
        self.wanted = 0

    def answer(self, received: Recorded) -> FakeReply:
        offered, text = list_tools(received.body), json.dumps(received.body)
        done = len(re.findall(r'"(?:tool_result|\w+_call_output)"|"role": "tool"', text))
        if not offered or done >= self.wanted:
            return FakeReply("Hi.")
        call = translate(FakeCall("bash", {"command": f"echo hello {done}"}), offered, Path())
        return FakeReply("word word word word", calls=(call,))


async def measure_program(made: Environments, name: str, model: str, folder: Path) -> Row:
    turns, runs = ShellTurns(), list[list[Recorded]]()
    async with serve(Recorder(turns.answer)) as recorder:
        for turns.wanted in (0, SHELL_TURNS):
            home, project = folder / f"home{turns.wanted}", folder / f"project{turns.wanted}"
            for one in (home, project):
                one.mkdir(parents=True)
            await execute(project, "git", "init", "-q", "-b", "main")
            place = Place(home, project, recorder.url)
            recorder.requests.clear()
            program, run, _, variables = PROGRAMS[name].prepare(made, place)
            own = {"OPENAI_BASE_URL": f"{place.url}/v1"} if model.startswith("openai/") else {}
            argv = [*program, *use_model(run, model)]
            row = await asyncio.to_thread(measure, argv, place, {**variables, **own})
            if "failed" in row:
                raise RuntimeError(f"{name}: {row['failed']}")
            # A request without tools is about something else, as a title.
            runs.append([one for one in recorder.requests if list_tools(one.body)])
    [first, *_], long = runs
    assert len(long) > SHELL_TURNS, f"{name}: {len(long)} requests"
    title = PROGRAMS[name].title + find_version(name)
    return Row(title, model or "any", split_sizes(first), max(one.size for one in long))


def use_model(arguments: list[str], model: str) -> list[str]:
    if not model:
        return arguments
    if "--model" in arguments:
        at = arguments.index("--model") + 1
        return [*arguments[:at], model, *arguments[at + 1 :]]
    return [*arguments, "-m", model]


def load_rows() -> list[Row]:
    return msgspec.json.decode(FIGURES.read_bytes(), type=list[Row])


def format_table(rows: list[Row]) -> str:
    lines = [HEADING]
    for row in sorted(rows, key=lambda row: row.first.all):
        sizes = [f"{size / 1000:.1f} KB" for size in (*row.first, row.after_commands)]
        lines.append(f"| {' | '.join([row.title, row.model, *sizes])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="default: %(default)s")
    parser.add_argument("--write", action="store_true", help="keep the table for the docs")
    given = parser.parse_args()
    made = Environments(given.cache)
    rows: list[Row] = []
    for name, model in RUNS:
        with tempfile.TemporaryDirectory(prefix="treadle-peers-") as folder:
            rows.append(asyncio.run(measure_program(made, name, model, Path(folder))))
    print(format_table(rows))
    if given.write:
        FIGURES.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")


if __name__ == "__main__":
    main()
