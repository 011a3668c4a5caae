"""Programs that a host runs for itself: ripgrep for names of files, `git --version`, a clipboard.

Not commands: those are the workspace's. What runs here is not walled in, so it is none of the
folder that we work in, it has none of our keys, and it ends in time whatever it is given to read.
Never git in a folder: what a folder's configuration names is run by git.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from treadle.workspace.environment import split_search_path

TIMEOUT_SECONDS = 10.0
MAX_OUTPUT_BYTES = 16 << 20
PASSED_VARIABLES = ("HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "XDG_CONFIG_HOME")
_LIMIT_SCRIPT = 'ulimit -v 2000000; ulimit -c 0; exec "$@"'  # some 2 GB: a file may have no end


def find_program(name: str, folder: Path, environ: Mapping[str, str] | None = None) -> str | None:
    """The program, but none of this folder: anybody could have put it there."""
    environ = os.environ if environ is None else environ
    return shutil.which(name, path=_safe_path(folder, environ))


def is_inside_folder(program: Path, folder: Path) -> bool:
    """Whether a program lies in the folder, or does in truth."""
    return Path(os.path.realpath(program)).is_relative_to(folder.resolve())


async def run_program(
    *argv: str,
    cwd: Path | None = None,
    variables: Iterable[str] = (),
    timeout: float | None = None,
    max_bytes: int = MAX_OUTPUT_BYTES,
) -> tuple[int, bytes, str]:
    """Exit code, the beginning of what it printed, and what it said about an error.

    `passed` are variables that it sees beside the few that every program needs: no path of
    libraries or modules is among those, since it may lead into the folder.
    127 is one that cannot be started, 124 one that did not end in time.
    """
    env = {name: os.environ[name] for name in (*PASSED_VARIABLES, *variables) if name in os.environ}
    env["PATH"] = _safe_path(Path.cwd(), os.environ)
    try:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _LIMIT_SCRIPT, "sh", *argv),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd or "/",
            env=env,
        )
    except OSError as error:
        return 127, b"", str(error)
    out, err = process.stdout, process.stderr
    assert out is not None
    assert err is not None
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS if timeout is None else timeout):
            printed, said = await asyncio.gather(
                _read_up_to(out, max_bytes), _read_up_to(err, 10_000)
            )
            code = 0 if len(printed) > max_bytes else await process.wait()
    except TimeoutError:
        return 124, b"", "it does not answer"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return code, printed[:max_bytes], said.decode(errors="replace")


def _safe_path(folder: Path, environ: Mapping[str, str]) -> str:
    return split_search_path(environ.get("PATH", ""), (folder.resolve(),))[0]


async def _read_up_to(stream: asyncio.StreamReader, max_bytes: int) -> bytes:
    """At most a little more than so many bytes; the end of the program ends the rest."""
    data = bytearray()
    while len(data) <= max_bytes and (piece := await stream.read(1 << 16)):
        data += piece
    return bytes(data)
