"""How much of a long piece of work the provider reads from its cache, by Anthropic's rule.

    python benchmarks/long_session.py

44 rounds in ten turns, each in a process of its own (`treadle -p … --continue`), as a person works
over a day: long outputs, a picture, edits, a child agent, a turn in plan mode, an MCP server that
is added in the middle, two compactions with summaries that the user asks for, and those that the
length needs. Every request counts, those of the child and of the summaries too. The rule is that of
benchmarks/cache.py.

    again      of the bytes that were sent before, read from the cache              at least 96 %
    uncached   what was sent outside of the cache, of the bytes that were new       at most 1.3
    summary    of each request for a summary, read from the cache                   at least 95 %
    share      of all that was sent, read from the cache: what is new cannot be, so it grows with
               the size of the prompt and falls with that of the outputs

New bytes are those of blocks (a tool, a system text, a part of a message) that no request had
before. A picture counts as 6,000 bytes. The price is that of the model of the requests.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cache import Request, count_cached, read_request
from treadle.apps.assembly import SessionOptions, build_agent
from treadle.apps.settings.settings import Settings
from treadle.models.catalog import card_for
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer
from treadle.testing.provider.http import ReceivedRequest
from treadle.testing.provider.script import FakeUsage

HERE = Path(__file__).resolve().parent

MODEL = "anthropic/claude-opus-5-5"
MIN_AGAIN, MAX_UNCACHED, MIN_SUMMARY = 0.96, 1.3, 0.95
COMPACT_AT = "54000"  # tokens
CHARS_PER_TOKEN = 4
PICTURE_BYTES = 6_000
CHILD_TASK = "Find where parse is used and report."
PROMPTS = (
    "The test of f1 fails. Make it pass, then document it. Remember: the codeword is heron.",
    "Measure the four modules.",
    "Look at shot.png, then add extra.py and better docs.",
    "Have an agent find where parse is used.",
    "Plan a rename of total.",
    "Number the docs of f4 to f9.",
    "Measure again.",
    "extra.g must return 2. Never use the word foo.",
    "Finish the docs.",
    "Are we done?",
)
PLAN_TURN, SERVER_TURN = 4, 6
COMPACTIONS = (5, 8)  # the turns after which the user asks for one
THOUGHT = "I think about the next step of this work, and choose the tool that fits it best."


class Measured(NamedTuple):
    purpose: str  # turn, child or summary
    request: Request
    cached: int


# --- the work ---------------------------------------------------------------------------------


def run(command: str) -> FakeCall:
    return FakeCall("bash", {"command": command})


def print_lines(seed: int) -> FakeCall:
    return run(
        f"python3 -c \"import random; random.seed({seed}); [print('line', i, 'value', "
        f"random.random(), 'module.sub{seed}.func', random.randint(1, 9999), 'elapsed', "
        'random.random()) for i in range(330)]"'
    )


def read(name: str, **part: int) -> FakeCall:
    return FakeCall("read", {"file_path": name, **part})


def edit(name: str, old: str, new: str) -> FakeCall:
    return FakeCall("edit", {"file_path": name, "old_string": old, "new_string": new})


def plan(*states: str) -> FakeCall:
    names = ("fix f1", "run tests", "document")
    todos = [{"content": n, "status": s} for n, s in zip(names, states, strict=True)]
    return FakeCall("todo", {"todos": todos})


TEST = run("python3 -m pytest -q 2>&1 | tail -5")
SEARCHES = (FakeCall("glob", {"pattern": "**/*.py"}), FakeCall("grep", {"pattern": "def f1"}))
TASK = FakeCall("task", {"description": "look", "prompt": CHILD_TASK, "subagent_type": "explore"})


def list_turns() -> list[list[tuple[FakeCall, ...]]]:
    """The rounds of each turn; a text ends it."""
    renames = [edit("calc.py", f'"""Function {n}."""', f'"""No. {n}."""') for n in range(4, 10)]
    docs = [edit("calc.py", f'"""Function {n}."""', f'"""Function no. {n}."""') for n in (2, 3)]
    outputs: dict[int, list[tuple[FakeCall, ...]]] = {
        start: [(print_lines(start + n),) for n in range(4)] for start in (0, 20, 30)
    }
    fix = edit("calc.py", "    return total + 1\n", "    return total + 2\n")
    begin = [SEARCHES, (read("calc.py"), read("test_calc.py"))]
    states = plan("in_progress", "pending", "pending")
    extra = FakeCall("write", {"file_path": "extra.py", "content": "def g():\n    return 1\n"})
    shown = (read("calc.py", offset=30, limit=60),)
    return [
        [*begin, (states,), (TEST,), (fix,), (run("python3 -m pytest -q 2>&1 | tail -5; exit 1"),)],
        outputs[0],
        [(read("shot.png"),), tuple(docs), (extra,), (run("cat extra.py"),)],
        [(TASK,), (read("calc.py", offset=1, limit=30),), (print_lines(11),)],
        [(FakeCall("grep", {"pattern": "total"}),), shown],
        [*[(one,) for one in renames], (TEST,)],
        [(run("touch started; sleep 3; echo waited"),), *outputs[20]],
        [(read("extra.py"),), (edit("extra.py", "return 1", "return 2"),), *outputs[30]],
        [
            (plan("completed", "completed", "in_progress"),),
            (read("calc.py"),),
            (edit("calc.py", '"""Function 10."""', '"""Tenth function."""'),),
            (print_lines(41),),
            (print_lines(42),),
        ],
        [(run("git diff --stat; git status --short"),), (plan(*["completed"] * 3),)],
    ]


def make_replies() -> Iterator[FakeReply]:
    for number, turn in enumerate(list_turns()):
        yield from (FakeReply(calls=calls) for calls in turn)
        yield FakeReply(f"Turn {number + 1} is done, and checked.")


class Provider:
    """Answers by the script; requests of a child agent and for summaries have answers of their
    own."""

    def __init__(self) -> None:
        self._replies = make_replies()
        self.bodies: list[tuple[str, dict[str, Any]]] = []

    def answer(self, received: ReceivedRequest) -> FakeReply:
        body = json.loads(received.body)
        purpose = find_purpose(body)
        self.bodies.append((purpose, body))
        size = sum(shorten_pictures(read_request(body)).sizes)
        if purpose == "summary":
            reply = FakeReply("Goal: extend calc. Known: calc.py, test_calc.py. Next: continue.")
        elif purpose == "child":
            replies = sum(message["role"] == "assistant" for message in body["messages"])
            again = FakeReply(calls=(run("ls -la; wc -l *.py"),))
            reply = again if replies < 2 else FakeReply("calc.py has the parser.")
        else:
            reply = next(self._replies)
        tokens = FakeUsage(input=10, cache_write=size // CHARS_PER_TOKEN)
        thinking = THOUGHT if "thinking" in body else ""
        return FakeReply(reply.text, thinking, reply.calls, usage=tokens)


def find_purpose(body: dict[str, Any]) -> str:
    if "handoff summary" in json.dumps(body["messages"][-1]):
        return "summary"
    return "child" if CHILD_TASK in json.dumps(body["messages"][0]) else "turn"


def shorten_pictures(request: Request) -> Request:
    sizes = [
        PICTURE_BYTES if '"type": "image"' in block else size
        for block, size in zip(request.blocks, request.sizes, strict=True)
    ]
    return request._replace(sizes=sizes)


# --- the folder and the processes -------------------------------------------------------------


def make_picture() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + bytes((x * 7 + y * 3) % 256 for x in range(900)) for y in range(200))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 300, 200, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


async def execute(folder: Path, *words: str, **variables: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=folder,
        env={**os.environ, **variables},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    shown, _ = await process.communicate()
    assert process.returncode == 0, f"{words}: {shown.decode()}"
    return shown.decode()


async def make_repository(folder: Path) -> None:
    parts = ['"""A calculator."""\n\n\ndef parse(text):\n    return text.split()\n']
    for number in range(1, 41):
        body = f'    """Function {number}."""\n    total = a + b\n    return total + {number}\n'
        parts.append(f"\n\ndef f{number}(a, b):\n{body}")
    (folder / "calc.py").write_text("".join(parts))
    test = "import calc\n\n\ndef test_f1():\n    assert calc.f1(1, 2) == 5\n"
    (folder / "test_calc.py").write_text(test)
    (folder / "AGENTS.md").write_text("# Project\n- Run tests with `python3 -m pytest -q`.\n")
    (folder / "shot.png").write_bytes(make_picture())
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "First")):
        await execute(folder, "git", *identity, *words)
    (folder / "notes.txt").write_text("A note of the user.\n")


async def run_session(folder: Path, url: str) -> None:
    treadle = (sys.executable, "-m", "treadle")
    variables = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "k",
        "TREADLE_COMPACT_AT": COMPACT_AT,
        "TREADLE_SERVER_WAIT": "1",
        "TREADLE_MAX_COST": "100",
        "TREADLE_SANDBOX": "off",
        "PYTHONPATH": "",
    }
    for number, prompt in enumerate(PROMPTS):
        if number == SERVER_TURN:
            server = HERE.parent / "tests" / "apps" / "mcp_server.py"
            words = [str(server), str(folder / "started")]
            definition = {"command": sys.executable, "args": words}
            (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"late": definition}}))
        if number in (0, SERVER_TURN):
            await execute(folder, *treadle, "trust", "--approve", **variables)
        mode = "plan" if number == PLAN_TURN else "bypass"
        resume = ("--continue",) if number else ()
        options = ("--model", MODEL, "--permission-mode", mode, *resume)
        await execute(folder, *treadle, "-p", prompt, *options, **variables)
        if number in COMPACTIONS:
            await compact(folder, variables)


async def compact(folder: Path, variables: dict[str, str]) -> None:
    """As `/compact` does at a terminal."""
    os.environ.update(variables)
    settings = Settings(model=MODEL, sandbox="off", permission_mode="bypass")
    session = await build_agent(settings, folder, SessionOptions(interactive=True, resume=""))
    driver = session.start()
    assert await driver.compact(), "the compaction was rejected"
    await driver.aclose()
    await session.aclose()


# --- the figures ------------------------------------------------------------------------------


def measure(bodies: list[tuple[str, dict[str, Any]]]) -> list[Measured]:
    earlier: list[Request] = []
    measured: list[Measured] = []
    for purpose, body in bodies:
        request = shorten_pictures(read_request(body))
        measured.append(Measured(purpose, request, count_cached(request, earlier)))
        earlier.append(request)
    return measured


class Figures(NamedTuple):
    requests: int
    sent: int
    cached: int
    new: int
    price: float
    summaries: list[float]

    @property
    def share(self) -> float:
        return self.cached / self.sent

    @property
    def again(self) -> float:
        return self.cached / (self.sent - self.new)

    @property
    def uncached(self) -> float:
        return (self.sent - self.cached) / self.new


def add_up(measured: list[Measured]) -> Figures:
    sent, cached = sum(one.request.size for one in measured), sum(one.cached for one in measured)
    blocks = {
        block: size
        for one in measured
        for block, size in zip(one.request.blocks, one.request.sizes, strict=True)
    }
    card = card_for(MODEL)
    assert card.input_price is not None
    assert card.cache_read_price is not None
    assert card.cache_write_price is not None
    written = sum(
        max(0, sum(one.request.sizes[: max(one.request.marks, default=0)]) - one.cached)
        for one in measured
    )
    rest = sent - cached - written
    tokens_price = (
        cached * card.cache_read_price + written * card.cache_write_price + rest * card.input_price
    )
    summaries = [one.cached / one.request.size for one in measured if one.purpose == "summary"]
    price = tokens_price / CHARS_PER_TOKEN / 1e6
    return Figures(len(measured), sent, cached, sum(blocks.values()), price, summaries)


def format_figures(figures: Figures, measured: list[Measured]) -> str:
    rows = [
        f"{number:4} {one.purpose:8} {one.request.size:9,} {one.cached / one.request.size:7.1%}"
        for number, one in enumerate(measured)
        if one.cached < 0.9 * one.request.size
    ]
    return "\n".join(
        [
            f"{figures.requests} requests, {figures.sent:,} bytes sent",
            f"again     {figures.again:6.1%} of what was sent before from the cache",
            f"share     {figures.share:6.1%} of all from the cache",
            f"uncached  {figures.uncached:6.2f} times the {figures.new:,} new bytes",
            f"summary   {', '.join(f'{one:.1%}' for one in figures.summaries)} from the cache",
            f"price     ${figures.price:.3f} for the input",
            "",
            "requests with less than 90 % from the cache:",
            *rows,
        ]
    )


async def run_benchmark(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """The purposes and bodies of all requests."""
    await make_repository(folder)
    provider = Provider()
    async with ProviderServer(provider.answer) as server:
        await run_session(folder, server.url)
        assert server.violations == [], server.violations
    return provider.bodies


def main() -> int:
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        folder = Path(home, "work")
        folder.mkdir()
        measured = measure(asyncio.run(run_benchmark(folder)))
    figures = add_up(measured)
    print(format_figures(figures, measured))
    return 0 if is_good(figures) else 1


def is_good(figures: Figures) -> bool:
    has_summaries = len(figures.summaries) >= 2 and min(figures.summaries) >= MIN_SUMMARY
    return has_summaries and figures.again >= MIN_AGAIN and figures.uncached <= MAX_UNCACHED


if __name__ == "__main__":
    sys.exit(main())
