"""What a long session costs with each program: the 44 rounds of benchmarks/long_session.py.

    python benchmarks/peers/recorded/session_cost.py              prints the table
    python benchmarks/peers/recorded/session_cost.py --keep DIR   also keeps the requests there

Each program, in the version of its lock, gets the same ten prompts in ten processes; the server
answers with the same calls, written for the tools that the program offers. Every request counts:
of child agents, of summaries, for a title. What is read from the cache follows Anthropic's rule,
for Codex OpenAI's: the longest beginning that an earlier request of the same model had. All is
priced by the list of one model, that of long_session.py: input, read from the cache, written to it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:] = [path for path in sys.path if Path(path).resolve() != HERE]
sys.path.insert(0, str(HERE.parents[2]))

from benchmarks import long_session  # noqa: E402
from benchmarks.cache import Request, count_cached, read_request  # noqa: E402
from benchmarks.long_session import Figures, Measured  # noqa: E402
from benchmarks.peers.environments import Environments  # noqa: E402
from benchmarks.peers.programs import PROGRAMS, Place, measure  # noqa: E402
from benchmarks.peers.recorded.first_requests import find_version  # noqa: E402
from benchmarks.peers.recorded.program_calls import list_tools, translate  # noqa: E402
from benchmarks.peers.recorded.recorder import Recorded, Recorder, serve  # noqa: E402
from benchmarks.peers.run import default_cache  # noqa: E402
from treadle.testing.provider import FakeCall, FakeReply  # noqa: E402
from treadle.testing.provider.script import FakeUsage  # noqa: E402

CODEX_MODEL = "gpt-6.1-sol"
CLAUDE_WINDOW = "60000"
IS_SUMMARY = re.compile(r"detailed summary|CONTEXT CHECKPOINT COMPACTION|handoff summary")
IS_PICTURE = re.compile(r'"type": "(?:image|input_image)"')
SERVER = HERE.parents[2] / "tests" / "apps" / "mcp_server.py"
HEADING = """\
| program | requests | bytes | new bytes | ceiling | from the cache | uncached ÷ new | input |
|---|--:|--:|--:|--:|--:|--:|--:|"""


class ProgramSession:
    """Answers a program by the script, in the calls of its tools."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self._replies = long_session.make_replies()
        self.purposes: list[str] = []

    def answer(self, received: Recorded) -> FakeReply:
        body = received.body
        purpose = find_purpose(body)
        self.purposes.append(purpose)
        size = read_any_request(body).size
        tokens = size // long_session.CHARS_PER_TOKEN
        usage = FakeUsage(10, cache_write=tokens) if "messages" in body else FakeUsage(tokens)
        match purpose:
            case "summary":
                text = "Goal: extend calc. Known: calc.py, test_calc.py. Next: continue."
                return FakeReply(f"<summary>{text}</summary>", usage=usage)
            case "title":
                return FakeReply('{"title": "Calc"}', usage=usage)
            case "child":
                messages = body.get("messages") or body["input"]
                results = len(
                    re.findall(r'"(?:tool_result|\w+_call_output)"', json.dumps(messages))
                )
                look = FakeCall("bash", {"command": "ls -la; wc -l *.py"})
                done = FakeReply("calc.py has the parser.", usage=usage)
                return (
                    done if results >= 2 else self._translate(FakeReply(calls=(look,)), body, usage)
                )
        return self._translate(next(self._replies), body, usage)

    def _translate(self, reply: FakeReply, body: dict[str, Any], usage: FakeUsage) -> FakeReply:
        offered = list_tools(body)
        calls = tuple(translate(call, offered, self._project) for call in reply.calls)
        thinking = long_session.THOUGHT if "thinking" in body else ""
        return FakeReply(reply.text, thinking, calls, usage=usage)


def find_purpose(body: dict[str, Any]) -> str:
    messages = body.get("messages") or body["input"]
    if IS_SUMMARY.search(json.dumps(messages[-1])):
        return "summary"
    if not list_tools(body):
        return "title"
    replies = (
        number
        for number, one in enumerate(messages)
        if one.get("role") == "assistant" or str(one.get("type")).endswith("_call")
    )
    begin = json.dumps(messages[: next(replies, len(messages))])
    return "child" if long_session.CHILD_TASK in begin else "turn"


def read_any_request(body: dict[str, Any]) -> Request:
    if "messages" in body:
        messages = [
            {**one, "content": [{"type": "text", "text": one["content"]}]}
            if isinstance(one["content"], str)
            else one
            for one in body["messages"]
        ]
        # The service removes this line before it looks into the cache.
        system = [
            one for one in body.get("system", []) if "x-anthropic-billing-header" not in one["text"]
        ]
        request = read_request({**body, "messages": messages, "system": system})
    else:
        # An item's id is no part of what the model reads.
        items = [{key: one[key] for key in one if key != "id"} for one in body["input"]]
        parts = [*(body.get("tools") or []), body.get("instructions") or "", *items]
        blocks = [json.dumps(part, sort_keys=True) for part in parts]
        request = Request(blocks, [len(one) for one in blocks], [len(blocks)], 0)
    sizes = [
        long_session.PICTURE_BYTES if IS_PICTURE.search(block) else size
        for block, size in zip(request.blocks, request.sizes, strict=True)
    ]
    return request._replace(sizes=sizes)


def count_prefix(request: Request, earlier: list[Request]) -> int:
    """By OpenAI's rule: the longest beginning that an earlier request had."""
    longest = 0
    for one in earlier:
        pairs = zip(request.blocks, one.blocks, strict=False)
        same = next(
            (n for n, (a, b) in enumerate(pairs) if a != b),
            min(len(one.blocks), len(request.blocks)),
        )
        longest = max(longest, same)
    return sum(request.sizes[:longest])


def measure_requests(bodies: list[tuple[str, dict[str, Any]]]) -> list[Measured]:
    earlier: dict[str, list[Request]] = {}
    measured: list[Measured] = []
    for purpose, body in bodies:
        request = read_any_request(body)
        before = earlier.setdefault(str(body["model"]), [])
        count = count_cached if "messages" in body else count_prefix
        measured.append(Measured(purpose, request, count(request, before)))
        before.append(request)
    return measured


def list_commands(name: str, project: Path) -> Iterator[list[str]]:
    """The arguments of each process."""
    server = {"command": sys.executable, "args": [str(SERVER)]}
    for number, prompt in enumerate(long_session.PROMPTS):
        has_server = number >= long_session.SERVER_TURN
        if name == "claude":
            mode = ["--dangerously-skip-permissions"]
            if number == long_session.PLAN_TURN:
                mode = ["--permission-mode", "plan"]
            model = long_session.MODEL.partition("/")[2]
            servers = json.dumps({"mcpServers": {"late": server} if has_server else {}})
            options = ["--model", model, *mode, "--mcp-config", servers]
            resume = ["--continue"] if number else []
            yield ["-p", prompt, *resume, *options]
            if number in long_session.COMPACTIONS:
                yield ["-p", "/compact", "--continue", *options]
            continue
        settings = {"model_auto_compact_token_limit": long_session.COMPACT_AT}
        if has_server:
            settings["mcp_servers.late.command"] = json.dumps(server["command"])
            settings["mcp_servers.late.args"] = json.dumps(server["args"])
        given = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        resume = ["resume", "--last"] if number else []
        yield ["exec", "--skip-git-repo-check", "-m", CODEX_MODEL, *given, *resume, prompt]


async def run_program(
    made: Environments, name: str, folder: Path
) -> list[tuple[str, dict[str, Any]]]:
    home, project = folder / "home", folder / "project"
    for one in (home, project):
        one.mkdir(parents=True)
    await long_session.make_repository(project)
    (project / "CLAUDE.md").symlink_to("AGENTS.md")  # Claude Code reads no AGENTS.md
    session = ProgramSession(project)
    async with serve(Recorder(session.answer)) as recorder:
        invocation = PROGRAMS[name].prepare(made, Place(home, project, recorder.url))
        own = {"IS_SANDBOX": "1", "CLAUDE_CODE_AUTO_COMPACT_WINDOW": CLAUDE_WINDOW}
        for arguments in list_commands(name, project):
            argv = [*invocation.program, *arguments]
            place = Place(home, project, recorder.url)
            row = await asyncio.to_thread(measure, argv, place, {**invocation.variables, **own})
            if "failed" in row:
                raise RuntimeError(f"{name} {arguments}: {row['failed']}")
    bodies = [one.body for one in recorder.requests]
    return list(zip(session.purposes, bodies, strict=True))


async def run_treadle(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    os.environ["HOME"] = str(folder / "home")
    project = folder / "project"
    project.mkdir(parents=True)
    return await long_session.run_benchmark(project)


def format_row(title: str, figures: Figures) -> str:
    ceiling = 1 - figures.new / figures.sent
    return (
        f"| {title} | {figures.requests} | {figures.sent:,} | {figures.new:,} | {ceiling:.1%} "
        f"| {figures.share:.1%} | {figures.uncached:.2f} | ${figures.price:.3f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="default: %(default)s")
    parser.add_argument("--keep", type=Path, help="a folder for the requests")
    parser.add_argument("names", nargs="*", default=["treadle", "claude", "codex"])
    given = parser.parse_args()
    made, rows = Environments(given.cache), []
    for name in given.names:
        with tempfile.TemporaryDirectory(prefix="treadle-session-") as folder:
            if name == "treadle":
                bodies = asyncio.run(run_treadle(Path(folder)))
            else:
                bodies = asyncio.run(run_program(made, name, Path(folder)))
        if given.keep:
            text = "".join(json.dumps(one) + "\n" for one in bodies)
            (given.keep / f"{name}.jsonl").write_text(text)
        measured = measure_requests(bodies)
        figures = long_session.add_up(measured)
        print(name, long_session.format_figures(figures, measured), sep="\n")
        rows.append(format_row(PROGRAMS[name].title + find_version(name), figures))
    print("", HEADING, *rows, sep="\n")


if __name__ == "__main__":
    main()
