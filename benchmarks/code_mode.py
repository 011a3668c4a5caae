"""Tokens of a task with forty reads and greps: by single calls, and by one program (code mode).

    python benchmarks/code_mode.py [--json]

The task: of twenty modules, name those that import `json` and never use it. By single calls a model
greps and reads each module, four calls in a reply; with code mode it writes one program that makes
the same forty calls. Both scripted sessions run through the real coding agent; counted is what the
requests of the session hold, by the estimate of four characters a token, and what of it the
conversation keeps at the end. Printed as a table for docs/code-mode.md. The program may send a
fifth of the tokens; the counts are the same in each run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import treadle
from benchmarks.measure import Figures, Verdict, find_ratio, parse_options, show_figures
from treadle.contracts import ModelRequest
from treadle.core.transcript.items import ToolResultItem
from treadle.models import Say, Scripted

MODULES = 20
CALLS_PER_REPLY = 4
MOST_SENT = 0.2
CODE = """
names = glob("*.py").split()
uses = call_all([("grep", {"pattern": r"json\\.", "path": n, "output_mode": "content"})
                 for n in names])
texts = call_all([("read", {"file_path": n}) for n in names])
for name, used, text in zip(names, uses, texts):
    if "import json" in text and "json." not in used:
        print(name)
"""


class Measured(NamedTuple):
    requests: int
    sent: int  # characters of all requests
    last: int  # characters of the last one
    answer: str


def make_project(folder: Path) -> list[str]:
    names = []
    for number in range(MODULES):
        lines = ["import json", ""] if number % 2 else [""]
        lines += [f"def part_{line}(value):\n    return value + {line}\n" for line in range(60)]
        if number % 4 == 1:
            lines.append("def encode(value):\n    return json.dumps(value)\n")
        names.append(f"module_{number:02}.py")
        (folder / names[-1]).write_text("\n".join(lines))
    return names


def script_single(names: list[str]) -> list[Say | str]:
    calls: list[tuple[str, dict[str, Any]]] = []
    for name in names:
        pattern = {"pattern": r"json\.", "path": name, "output_mode": "content"}
        calls += [("grep", pattern), ("read", {"file_path": name})]
    starts = range(0, len(calls), CALLS_PER_REPLY)
    return [*(Say(calls=calls[start : start + CALLS_PER_REPLY]) for start in starts), "done"]


async def measure(folder: Path, replies: list[Say | str], *, code_mode: bool) -> Measured:
    model = Scripted(replies)
    async with treadle.coding_agent(
        folder,
        model=model,
        settings={"code_mode": code_mode},
        approve=lambda approval: approval.call.name == "run_code",
    ) as agent:
        result = await agent.run("Which modules import json and never use it?")
    results = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert not any(item.is_error for item in results), results
    sizes = [measure_request(request) for request in model.requests]
    return Measured(len(sizes), sum(sizes), sizes[-1], results[-1].text)


def measure_request(request: ModelRequest) -> int:
    specs = [[spec.name, spec.description, spec.schema] for spec in request.tools]
    items = msgspec.json.encode(list(request.transcript))
    return len(request.system) + len(json.dumps(specs)) + len(items)


async def measure_both() -> dict[str, Measured]:
    measured = {}
    for title, is_code in (("single calls", False), ("one program", True)):
        with tempfile.TemporaryDirectory() as place:
            names = make_project(Path(place))
            program: list[Say | str] = [Say(calls=[("run_code", {"code": CODE})]), "done"]
            replies = program if is_code else script_single(names)
            done = await measure(Path(place), replies, code_mode=is_code)
        measured[title] = done
        expected = [name for number, name in enumerate(names) if number % 4 == 3]
        assert not is_code or done.answer.split() == expected, done.answer
    return measured


def main() -> int:
    options = parse_options(argparse.ArgumentParser(description="Tokens of calls and of code."))
    measured = asyncio.run(measure_both())
    if options.json:
        figures: Figures = {f"tokens sent, {title}": (done.sent / 4, "")
                            for title, done in measured.items()}  # fmt: skip
        show_figures(figures, as_json=True)
        return 0
    print("| 40 reads and greps | requests | tokens sent | tokens of the last request |")
    print("|---|--:|--:|--:|")
    for title, done in measured.items():
        print(f"| {title} | {done.requests} | {done.sent // 4:,} | {done.last // 4:,} |")
    single, program = measured.values()
    verdict = Verdict()
    sent = find_ratio([(program.sent, single.sent)])
    verdict.check("tokens sent, of single calls", sent, MOST_SENT)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
