"""Whether the sandbox can be built here, found out by building it.

`local.py` asks once when it opens, and tells the user the sentence; what then happens to commands
is the policy's business.
"""

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
        "this system does not let this user make namespaces "
        "(user.max_user_namespaces, AppArmor, or the container it runs in)",
    ),
    (
        "setting up uid map",
        "this system does not let this user make namespaces "
        "(AppArmor's restriction of unprivileged user namespaces, or the container it runs in)",
    ),
    ("mount proc", "a new /proc cannot be mounted here, as in a container without privileges"),
)


async def find_sandbox_problem(
    fork_server: ForkServerClient, sandbox: Bubblewrap, root: Path, env: dict[str, str]
) -> str:
    """One sentence why commands cannot be walled in here; nothing if they can."""
    if not sandbox.program:
        return "bubblewrap is not installed (package bubblewrap, program bwrap)"
    command = CommandSpec(argv=("true",), cwd=str(root), env=env, timeout=10.0)
    try:
        with sandbox.wrap(command) as wrapped:
            ended = await fork_server.run(wrapped)
    except (WorkspaceError, UnknownMachine) as error:
        return str(error)
    if ended.exit_code == 0:
        return ""
    said = decode_output(ended.stream.head).strip()
    return next(
        (why for sign, why in KNOWN_ERRORS if sign in said), f"bubblewrap failed: {said[:200]}"
    )
