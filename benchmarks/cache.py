"""How much of the requests of a session the provider reads from its cache, by Anthropic's rule.

    python benchmarks/cache.py

A scripted session of 20 turns runs through the real request code against a server on loopback. The
rule: a request reads the longest beginning that is the same, block by block (tools, system,
messages), as one that an earlier request marked for the cache, at most 20 blocks before a mark of
its own. Another setting of thinking keeps only tools and system.

    share      of all input of the session, the first request included      at least 95 %
    moments    of what a request can keep: all of the request before it;
               after a compaction the tools and the system prompt           at least 90 %
"""

# ruff: noqa: ASYNC240 (files are how the agent and the server meet)

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from treadle.apps.assembly import SessionOptions, build_agent
from treadle.apps.assembly.assemble import AgentSession
from treadle.apps.settings.settings import Settings
from treadle.core.loop.driver import Driver
from treadle.core.steps import AfterToolResult, Finished
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

TURNS = 20
LOOK_BACK = 20
MIN_SHARE, MIN_KEPT = 0.95, 0.90
# The one MCP server starts only after some turns: the first request does not wait for it.
SETTINGS = Settings(model="anthropic/claude-opus-5-5", sandbox="off", server_wait=0.01)
HERE = Path(__file__).resolve().parent
MCP_SERVER = HERE.parent / "tests" / "apps" / "mcp_server.py"
SUMMARY = "Goal: read the files. Next: continue."


class Request(NamedTuple):
    """The blocks of a request without their marks, their sizes, and which of them are marked."""

    blocks: list[str]
    sizes: list[int]
    marks: list[int]  # how many blocks the cache holds there
    head: int  # how many blocks are tools and system

    @property
    def size(self) -> int:
        return sum(self.sizes)


class Moment(NamedTuple):
    name: str
    can_keep: int
    kept: int

    @property
    def share(self) -> float:
        return self.kept / self.can_keep


class Report(NamedTuple):
    requests: int
    sent: int
    cached: int
    moments: list[Moment]

    @property
    def share(self) -> float:
        return self.cached / self.sent


def read_request(body: dict[str, Any]) -> Request:
    blocks: list[str] = []
    sizes: list[int] = []
    marks: list[int] = []

    def add(block: dict[str, Any], context: str) -> None:
        plain = {key: value for key, value in block.items() if key != "cache_control"}
        text = json.dumps(plain, sort_keys=True)
        blocks.append(context + text)
        sizes.append(len(text))
        if "cache_control" in block:
            marks.append(len(blocks))

    for tool in body.get("tools", []):
        add(tool, "tool ")
    for block in body.get("system", []):
        add(block, "system ")
    head = len(blocks)
    thinking = json.dumps(
        [body.get("thinking"), body.get("output_config"), body.get("tool_choice")]
    )
    for message in body["messages"]:
        for block in message["content"]:
            add(block, f"{thinking} {message['role']} ")
    return Request(blocks, sizes, marks, head)


def count_cached(request: Request, earlier: list[Request]) -> int:
    """Characters of this request that an earlier one has put into the cache."""
    longest = 0
    for one in earlier:
        for written in one.marks:
            is_near = any(written <= mark <= written + LOOK_BACK for mark in request.marks)
            if written > longest and is_near and one.blocks[:written] == request.blocks[:written]:
                longest = written
    return sum(request.sizes[:longest])


class Session:
    """Runs a coding agent, and keeps what it sent."""

    def __init__(self, server: ProviderServer) -> None:
        self._server = server
        self._recorded: list[tuple[Request, str]] = []
        self._seen = 0

    async def open(self, **options: Any) -> tuple[AgentSession, Driver]:
        chosen = SessionOptions(checkpoints=False, **options)
        session = await build_agent(SETTINGS, Path.cwd(), chosen)
        return session, session.start()

    async def run_turn(
        self, driver: Driver, prompt: str, moment: str = "", steer: str = ""
    ) -> None:
        driver.submit(prompt)
        while True:
            step = await driver.next()
            if isinstance(step, AfterToolResult) and steer:
                self.record(moment="")
                driver.steer(steer)
                moment, steer = "steering", ""
                continue
            self.record(moment)
            moment = ""
            if isinstance(step, Finished):
                assert step.result.error is None, step.result.error
                return

    def record(self, moment: str) -> None:
        for received in self._server.generation_requests[self._seen :]:
            body = json.loads(received.body)
            is_summary = "handoff summary" in json.dumps(body["messages"][-1])
            self._recorded.append((read_request(body), "summary" if is_summary else moment))
            moment = moment if is_summary else ""
        self._seen = len(self._server.generation_requests)

    def report(self) -> Report:
        requests = [request for request, _ in self._recorded]
        moments: list[Moment] = []
        cached = 0
        for number, (request, moment) in enumerate(self._recorded):
            read = count_cached(request, requests[:number])
            cached += read
            if moment:
                before = requests[number - 1]
                head = sum(request.sizes[: request.head])
                can_keep = head if moment == "compact" else before.size
                moments.append(Moment(moment, can_keep, read))
        return Report(len(requests), sum(one.size for one in requests), cached, moments)


def make_replies(turns: int) -> Iterator[FakeReply]:
    for number in range(turns):
        call = FakeCall("read", {"file_path": f"file{number % 5}.py"})
        yield FakeReply(f"I read file {number % 5}.", calls=(call,))
        yield FakeReply(f"File {number % 5} defines numbers. " * 5)


async def run_main_session() -> Report:
    """20 turns with a change of mode, steering, two restarts and a compaction."""
    rest = TURNS - 16
    replies = [*make_replies(16), FakeReply(SUMMARY), *make_replies(rest)]
    async with ProviderServer(replies) as server:
        os.environ["ANTHROPIC_BASE_URL"] = server.url
        talk = Session(server)
        session, driver = await talk.open(interactive=True)
        for number in range(10):
            if number == 4:
                session.policy.change_mode("plan")
            moment = "mode" if number == 4 else ""
            steer = "Look at the names too." if number == 7 else ""
            await talk.run_turn(driver, f"Read file {number % 5}.", moment, steer)
        await driver.aclose()
        await session.aclose()
        for moment, interactive in (("continue", True), ("host", False)):
            session, driver = await talk.open(interactive=interactive, resume="")
            for number in range(3):
                await talk.run_turn(driver, f"Read file {number}.", moment if not number else "")
            if moment == "continue":
                await driver.aclose()
                await session.aclose()
        assert await driver.compact(), "the compaction was rejected"
        for number in range(rest):
            await talk.run_turn(driver, f"Read file {number}.", "compact" if not number else "")
        await driver.aclose()
        await session.aclose()
        assert server.violations == [], server.violations
        return talk.report()


async def run_server_session() -> Report:
    """A session whose MCP server is ready only after the first turns."""
    started = Path("started")
    servers = {
        "tiny": {"command": sys.executable, "args": [str(MCP_SERVER), str(started.resolve())]}
    }
    async with ProviderServer([*make_replies(5)]) as server:
        os.environ["ANTHROPIC_BASE_URL"] = server.url
        talk = Session(server)
        session, driver = await talk.open(interactive=True, servers=servers)
        for number in range(5):
            if number == 3:
                started.touch()
                assert await session.servers[0].wait_ready(60.0)
            await talk.run_turn(
                driver, f"Read file {number}.", "server added" if number == 3 else ""
            )
        await driver.aclose()
        await session.aclose()
        return talk.report()


async def run_benchmark() -> Report:
    """In the current folder, which gets some files; sessions are kept in the home folder."""
    os.environ["ANTHROPIC_API_KEY"] = "k"
    for number in range(5):
        Path(f"file{number}.py").write_text(f"x{number} = {number}\n" * 40)
    main = await run_main_session()
    extra = await run_server_session()
    return main._replace(moments=[*main.moments, *extra.moments])


def format_report(report: Report) -> str:
    sent = f"{report.requests} requests, {report.sent:,} characters"
    heading = f"{'moment':14} {'can keep':>10} {'kept':>10} {'share':>7}"
    rows = [
        f"{one.name:14} {one.can_keep:10,} {one.kept:10,} {one.share:7.1%}"
        for one in report.moments
    ]
    return "\n".join([f"{sent}, {report.share:.1%} from the cache", "", heading, *rows])


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder
        work = Path(folder, "work")
        work.mkdir()
        os.chdir(work)
        report = asyncio.run(run_benchmark())
        os.chdir("/")
    print(format_report(report))
    is_good = report.share >= MIN_SHARE and all(one.share >= MIN_KEPT for one in report.moments)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
