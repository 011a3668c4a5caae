"""Running the real program in tests: a process of its own against a provider on loopback."""

from __future__ import annotations

import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Any, NamedTuple

import treadle
from tests.preloaded import start_preloaded
from treadle.testing.provider import ProviderServer

PROGRAM = [sys.executable, "-I", str(Path(treadle.__file__).parent / "__main__.py")]
MAIN = "import sys; from treadle.__main__ import main; sys.exit(main())"
# All modules but those of other programs; an extra may be missing. And what a program makes once,
# whatever its settings are: patterns and the descriptions of tools.
IMPORTS = """
import concurrent.futures.thread, contextlib, gc, importlib, pkgutil, treadle
left_out = ("treadle.apps.tui", "treadle.apps.web", "treadle.models.embedded", "treadle.testing")
for module in pkgutil.walk_packages(treadle.__path__, "treadle."):
    if not module.name.startswith(left_out):
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)
with contextlib.suppress(ImportError):
    import tree_sitter, tree_sitter_bash
from treadle.lib.text.lazy_regex import _LazyPattern
for pattern in gc.get_objects():
    if type(pattern) is _LazyPattern:
        pattern.search, pattern.match, pattern.fullmatch, pattern.sub, pattern.finditer
from treadle.tools.builtin import _TOOL_CLASSES, base
for tool_class in _TOOL_CLASSES:
    base._make_spec(tool_class)
"""


class Ran(NamedTuple):
    code: int | None
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def environment(server: ProviderServer | None = None, **more: str) -> dict[str, str]:
    # On a busy machine a server takes long to start; a test that is about the wait says its own.
    env = {"TREADLE_SERVER_WAIT": "50", **os.environ, **more}
    if server is not None:
        env |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "test"}
    return env


async def start(
    server: ProviderServer | None,
    *arguments: str,
    stdin: int = DEVNULL,
    cwd: Path | None = None,
    **more: str,
) -> Process:
    env = environment(server, **more)
    return await start_preloaded(IMPORTS, MAIN, *arguments, stdin=stdin, cwd=cwd, env=env)


async def finish(process: Process, said: bytes | None = None) -> Ran:
    out, err = await process.communicate(said)
    return Ran(process.returncode, out.decode(), err.decode())


async def run(
    server: ProviderServer | None, *arguments: str, said: bytes | None = None, **more: str
) -> Ran:
    stdin = DEVNULL if said is None else PIPE
    return await finish(await start(server, *arguments, stdin=stdin, cwd=None, **more), said)


async def line_with(process: Process, *words: str) -> str:
    """Read standard output up to the first line that holds all these words."""
    assert process.stdout is not None
    async for line in process.stdout:
        text = line.decode()
        if all(word in text for word in words):
            return text
    raise AssertionError(f"no line with {words}")


def read_terminal(terminal: int) -> bytes:
    """All that the programs on a terminal write, until the last one has ended; a question is
    answered with no."""
    said = b""
    while True:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # no program has the other end any more
            return said
        said += piece
        if b"[y/N]" in piece:
            os.write(terminal, b"n\n")
