"""Runs the program git with a safe environment.

    run_git           in a folder that the user trusts: no hooks, no file monitor, no terminal.
                      Other programs that the repository names, such as filters, do run
    plain_repository  for files of any repository: git reads no configuration at all

Where neither will do, because git would have to read the configuration of an untrusted repository,
the other modules here parse its files.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Mapping
from pathlib import Path

from treadle.lib.child_process import start_child
from treadle.lib.files.search_path import DEFAULT_PATH, find_program

GIT_TIMEOUT = 300.0
# The hooks and the file monitor of a repository are programs that nobody asked for here.
SAFE_SETTINGS = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.quotePath=false")


class GitError(Exception):
    """git is not there, failed, or did not end. `said`: its own words."""

    def __init__(self, problem: str, said: str = "") -> None:
        super().__init__(problem)
        self.said = said


async def run_git(
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str],
    settings: tuple[str, ...] = (),
    stdin: bytes = b"",
    timeout: float = GIT_TIMEOUT,
) -> str:
    """The output of git. `settings` are those of the call, beside the safe ones."""
    starting = start_child(
        find_git(folder, environment),
        *(word for setting in (*SAFE_SETTINGS, *settings) for word in ("-c", setting)),
        *arguments,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=folder,
        env={**environment, "LC_ALL": "C.UTF-8"},
        start_new_session=True,
    )
    async with starting as process:
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin), timeout)
        except TimeoutError:
            raise GitError(f"git {arguments[0]} did not end in {timeout:g} s") from None
    if process.returncode != 0:
        said = err.decode(errors="replace").strip()
        reason = said[:500] or f"exit code {process.returncode}"
        raise GitError(f"git {arguments[0]}: {reason}", said)
    return out.decode(errors="surrogateescape")


def find_git(not_in: Path, environ: Mapping[str, str] = os.environ) -> str:
    """The path of the program; one in the folder `not_in` does not count."""
    program = find_program("git", not_in, environ)
    if program is None:
        raise GitError("git is not installed, or not in PATH")
    return program


@contextlib.contextmanager
def plain_repository(**variables: str) -> Iterator[dict[str, str]]:
    """The environment of git in an empty repository, which has no configuration: neither its own
    nor that of the system, the user, or the repository whose files `variables` name."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("objects", "refs", "files"):
            Path(folder, name).mkdir()
        Path(folder, "HEAD").write_text("ref: refs/heads/main\n")
        yield {
            "PATH": DEFAULT_PATH,
            "HOME": folder,
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_DIR": folder,
            "GIT_WORK_TREE": f"{folder}/files",
            **variables,
        }
