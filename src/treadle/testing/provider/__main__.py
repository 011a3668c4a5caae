"""The loopback provider as a process: `python -m treadle.testing.provider --script FILE`.

Prints its URL on the first line, then serves until SIGTERM or SIGINT.
For benchmarks and for tests of whole programs; inside one process use `ProviderServer`.
"""

import argparse
import asyncio
import signal
import sys
import textwrap
from pathlib import Path

import msgspec

from .answers import PlannedAnswer, ProviderFault
from .dialects import FakeDialect
from .dialects.request_checks import ServerLimits
from .faults import FAULTS
from .http import ReceivedRequest
from .script import FakeReply, ReplyScript
from .server import ProviderServer

EXAMPLE = """\
{"replies": [{"thinking": "I look.", "calls": [{"name": "bash", "arguments": {"command": "ls"}}]},
             {"text": "Done.", "stop": "end_turn", "usage": {"input": 100, "output": 5}}],
 "by": "turn",
 "faults": [{"name": "rate_limited", "at": 1, "times": 1}]}"""

EPILOG = f"""\
a script, in JSON; only "replies" is needed:
{EXAMPLE}

  replies   each with "text", "thinking", "calls", or "parts" for another order; "stop", "usage"
  by        "request": each reply once, in order; "turn": by the number of replies in the request
  faults    "at" is the first request that has it, counted from 0; "times" for how many
            (-1: all); further settings: "status", "value", "count", "seconds", "message"

faults:
{textwrap.fill(", ".join(FAULTS), 98, initial_indent="  ", subsequent_indent="  ")}
"""


class ScriptFile(msgspec.Struct, frozen=True):
    """A script file: `{"replies": [...], "by": "turn", "faults": [{"name": ...}]}`."""

    replies: tuple[FakeReply, ...]
    by: str = "request"
    faults: tuple[ProviderFault, ...] = ()


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m treadle.testing.provider",
        description="A scripted model provider on loopback.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--script",
        default='{"replies": [{"text": "Hello."}], "by": "turn"}',
        help="JSON as below, or the path of a file with it",
    )
    text = "a fault by its name, or as in a script (repeatable)"
    parser.add_argument("--fault", action="append", default=[], metavar="NAME or JSON", help=text)
    parser.add_argument("--lenient", action="store_true", help="do not check requests")
    parser.add_argument("--context-window", type=int)
    parser.add_argument("--api-key")
    parser.add_argument(
        "--log",
        metavar="FILE",
        help="write each request and violation there, as JSON lines, before it is answered",
    )
    return parser.parse_args()


def _parse_faults(names: list[str]) -> list[ProviderFault]:
    return [
        msgspec.json.decode(name, type=ProviderFault)
        if name.startswith("{")
        else ProviderFault(name)
        for name in names
    ]


async def _serve(args: argparse.Namespace) -> None:
    text = args.script
    if not text.lstrip().startswith("{"):
        text = await asyncio.to_thread(Path(text).read_text, encoding="utf-8")
    file = msgspec.json.decode(text, type=ScriptFile)
    script = msgspec.convert({"replies": file.replies, "by": file.by}, type=ReplyScript)
    server = LoggedServer(
        script,
        faults=[*file.faults, *_parse_faults(args.fault)],
        strict=not args.lenient,
        limits=ServerLimits(context_window=args.context_window),
        api_key=args.api_key,
        port=args.port,
    )
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if args.log:
        server.log = Path(args.log)
        await asyncio.to_thread(server.log.write_bytes, b"")
    async with server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        await stop.wait()


class LoggedServer(ProviderServer):
    """Writes each request to `log`, and what is wrong with it, before it is answered."""

    log: Path | None = None
    _logged_violations = 0

    def _answer_other(self, request: ReceivedRequest) -> bytes:
        self._write_log(request)
        return super()._answer_other(request)

    def _plan_answer(self, request: ReceivedRequest, dialect: FakeDialect) -> PlannedAnswer:
        plan = super()._plan_answer(request, dialect)
        self._write_log(request)
        return plan

    def _write_log(self, request: ReceivedRequest) -> None:
        if self.log is None:
            return
        fields = ("path", "number", "time", "connection", "headers")
        line = {name: getattr(request, name) for name in fields}
        lines = [{**line, "body": request.body.decode("utf-8", "replace")}]
        new = self.violations[self._logged_violations :]
        lines += [{"violation": str(problem)} for problem in new]
        self._logged_violations += len(new)
        with self.log.open("ab") as file:
            file.write(b"".join(msgspec.json.encode(one) + b"\n" for one in lines))


if __name__ == "__main__":
    try:
        asyncio.run(_serve(_parse_arguments()))
    except (msgspec.DecodeError, OSError, ValueError) as error:
        sys.exit(f"the provider cannot start: {error}")
