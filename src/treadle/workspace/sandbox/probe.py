"""Whether the sandbox can be built here: tried once by `local.py`, which shows the problem to the
user. The policy decides what then happens to commands."""

from __future__ import annotations

from pathlib import Path

from treadle.core.errors import WorkspaceError
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
        return "bubblewrap is not installed (package bubblewrap, program bwrap)"
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
    return next(known, f"bubblewrap failed: {output[:200]}")
