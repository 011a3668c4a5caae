"""Whether the sandbox can be built here, whether it confines commands, and whether a command in it
wanted the network it has not.

The first is tried once by `local.py`, which shows the problem to the user; the policy decides what
then happens to commands. The second is tried by `treadle doctor`. The third is read in the output
of a command (a failed name look-up, a refused connection): a hint for the model, never a decision.
"""
# ruff: noqa: ASYNC240 (nothing else runs while `treadle doctor` looks)

from __future__ import annotations

import re
import shlex
import socket
import tempfile
from pathlib import Path

from treadle.core.contracts.workspace import Workspace
from treadle.core.errors import WorkspaceError
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.workspace.output import decode_output
from treadle.workspace.processes import CommandSpec, ForkServerClient
from treadle.workspace.sandbox.bubblewrap import Bubblewrap
from treadle.workspace.sandbox.seccomp import UnknownMachine

KNOWN_ERRORS = (
    ("Unknown option --disable-userns", "bubblewrap is too old; version 0.8 or later is needed"),
    (
        "No permissions to create",
        "this system does not let this user create namespaces "
        "(user.max_user_namespaces, AppArmor, or the container it runs in)",
    ),
    (
        "setting up uid map",
        "this system does not let this user create namespaces "
        "(AppArmor's restriction of unprivileged user namespaces, or the container it runs in)",
    ),
    ("mount proc", "a new /proc cannot be mounted here, as in a container without privileges"),
)


async def find_sandbox_problem(
    fork_server: ForkServerClient, sandbox: Bubblewrap, root: Path, env: dict[str, str]
) -> str:
    """One sentence on why the sandbox cannot be built here; "" if it can. Bubblewrap reports its
    problems only as text, so known texts are explained and others are shown."""
    if not sandbox.program:
        return sandbox.missing
    command = CommandSpec(argv=("true",), cwd=str(root), env=env, timeout=10.0)
    output = ""
    for _ in range(2):  # a file of the host that vanishes meanwhile makes one attempt fail
        try:
            with sandbox.wrap(command, is_trial=True) as wrapped:
                ended = await fork_server.run(wrapped)
        except (WorkspaceError, UnknownMachine) as error:
            return str(error)
        if ended.exit_code == 0:
            return ""
        output = decode_output(ended.stream.head).strip()
    known = (reason for sign, reason in KNOWN_ERRORS if sign in output)
    return next(known, f"{sandbox.name} failed: {output[:200]}")


SECRET = "a file outside of the folder"
LEAK_TRIAL = """\
cat {folder}/file && echo; echo x > {folder}/written; (: < /dev/tcp/127.0.0.1/{port}) 2>/dev/null
true"""


async def find_leak(workspace: Workspace) -> str:
    """What a command in the sandbox of an open workspace could do that it must not; "" if
    nothing: it tries to read and to write a file outside of the folder, and to connect."""
    outside = [Path.home(), Path(tempfile.gettempdir())]
    outside = [folder for folder in outside if not folder.is_relative_to(workspace.root)]
    with (
        tempfile.TemporaryDirectory(prefix=".treadle-doctor-", dir=outside[0]) as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        server.setblocking(False)
        Path(folder, "file").write_text(SECRET)
        port = server.getsockname()[1]
        trial = LEAK_TRIAL.format(folder=shlex.quote(folder), port=port)
        done = await workspace.run(trial, sandboxed=True)
        leaks = {
            "read a file outside of the folder": SECRET in done.output,
            "wrote a file outside of the folder": Path(folder, "written").exists(),
            "connected to a server": _was_connected(server),
        }
    return ", ".join(what for what, could in leaks.items() if could)


def _was_connected(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


NO_NETWORK_NOTE = (
    "the sandbox has no network: names cannot be looked up, and servers outside the sandbox cannot "
    'be reached, also not on localhost; a command with `sandbox: "network"` asks the user for it'
)
_PROBLEMS = compile_lazily(
    r"could not resolve|(?:failed|unable) to resolve|temporary failure in name resolution|"
    r"name or service not known|no address associated|nodename nor servname|no such host|"
    r"name resolution|dns (?:error|lookup|failure)|getaddrinfo|EAI_AGAIN|ENOTFOUND|ENETUNREACH|"
    r"ECONNREFUSED|connection refused|network is unreachable|no route to host|"
    r"failed to establish a new connection|temporary failure resolving|couldn't connect to server|"
    r"\(from versions: none\)",
    re.IGNORECASE,
)
# What hardly stands in a file: `npm install 2>&1 | tail` ends with 0, whatever npm said.
_CERTAIN_PROBLEMS = compile_lazily(
    r"could not resolve host: \S|getaddrinfo (?:EAI_AGAIN|ENOTFOUND) \S|"
    r"\[Errno -[23]\] \w|: temporary failure in name resolution$|"
    r"temporary failure resolving '\S|curl: \(7\) |\(from versions: none\)$",
    re.IGNORECASE | re.MULTILINE,
)


def mentions_network(output: str, *, failed: bool = True) -> bool:
    """`failed`: the command did, so a looser sign is enough."""
    return (_PROBLEMS if failed else _CERTAIN_PROBLEMS).search(output) is not None
