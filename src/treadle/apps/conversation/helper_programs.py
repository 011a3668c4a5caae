"""Runs programs that a host itself needs: ripgrep for file names, `git --version`, a clipboard.

Not commands of the agent: those run in the workspace. These run outside the sandbox, so they never
come from the project folder, get no keys, and have a time limit. Never run git in a folder: git
runs programs that the folder's configuration names.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from treadle.lib.child_process import start_child
from treadle.lib.files.search_path import split_search_path

TIMEOUT_SECONDS = 10.0
MAX_OUTPUT_BYTES = 16 << 20
PASSED_VARIABLES = ("HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "XDG_CONFIG_HOME")
_LIMIT_SCRIPT = 'ulimit -v 2000000; ulimit -c 0; exec "$@"'  # about 2 GB: an input may be endless


async def run_program(
    *argv: str,
    cwd: Path | None = None,
    variables: Iterable[str] = (),
    timeout: float | None = None,
    max_bytes: int = MAX_OUTPUT_BYTES,
) -> tuple[int, bytes, str]:
    """Exit code, the first `max_bytes` of stdout, and stderr.

    `variables` are passed in addition to PASSED_VARIABLES. No search path for libraries or modules
    is passed: it may point into the folder. Exit code 127: cannot be started. 124: timed out.
    """
    env = {name: os.environ[name] for name in (*PASSED_VARIABLES, *variables) if name in os.environ}
    env["PATH"] = split_search_path(os.environ.get("PATH", ""), (Path.cwd().resolve(),))[0]
    starting = start_child(
        *("/bin/sh", "-c", _LIMIT_SCRIPT, "sh", *argv),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd or "/",
        env=env,
    )
    seconds = TIMEOUT_SECONDS if timeout is None else timeout
    try:
        async with starting as process, asyncio.timeout(seconds):
            out, err = process.stdout, process.stderr
            assert out is not None
            assert err is not None
            reading = _read_up_to(out, max_bytes), _read_up_to(err, 10_000)
            stdout, stderr = await asyncio.gather(*reading)
            code = 0 if len(stdout) > max_bytes else await process.wait()
    except TimeoutError:
        return 124, b"", "timed out"
    except OSError as error:
        return 127, b"", str(error)
    return code, stdout[:max_bytes], stderr.decode(errors="replace")


async def _read_up_to(stream: asyncio.StreamReader, max_bytes: int) -> bytes:
    """At least `max_bytes` if there are as many; the rest is not read."""
    data = bytearray()
    while len(data) <= max_bytes and (piece := await stream.read(1 << 16)):
        data += piece
    return bytes(data)
