"""Runs the command of the setting `status_line`, whose output is the status line of the terminal.

It gets a JSON object on its standard input, with the names of Claude Code's `statusLine`, so that
scripts for it run unchanged; what is not known here is left out. It runs where hooks run: the
user's own outside of the sandbox if the folder is trusted, that of a project inside, and only as
the user approved it. Used by the terminal and by `/statusline`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from treadle._version import __version__
from treadle.apps.assembly.hooks import make_hook_environment
from treadle.apps.assembly.redaction import redact
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.settings.extensions import find_project_status_line
from treadle.core.errors import WorkspaceError

TIMEOUT_SECONDS = 5.0
MAX_BYTES = 8 << 10
MAX_LINES = 3
MAX_PROBLEM_CHARS = 200
OFF = "off"
LONG_CONTEXT = 200_000


def make_status_input(session: HostedSession) -> dict[str, Any]:
    """The state of the open session; equal objects give the same line."""
    view, card = session.require_conversation().view, session.model.card
    folder, window, used = str(session.folder), card.window, view.context_tokens
    share = round(100 * used / window) if window else 0
    return {
        "hook_event_name": "Status",
        "session_id": session.driver.session_id,
        "session_name": session.saved.name,
        "transcript_path": str(session.session_dir / "journal.jsonl"),
        "cwd": folder,
        "model": {"id": view.model or card.name, "display_name": view.model or card.name},
        "workspace": {"current_dir": folder, "project_dir": folder},
        "version": __version__,
        "permission_mode": session.permissions.mode,
        "cost": {"total_cost_usd": view.usage.known_cost},
        "context_window": {
            "context_window_size": window,
            "total_input_tokens": view.usage.total_input,
            "total_output_tokens": view.usage.output,
            "used_percentage": share,
            "remaining_percentage": 100 - share,
        },
        "exceeds_200k_tokens": used > LONG_CONTEXT,
    }


async def run_status_line(session: HostedSession, status: Mapping[str, Any]) -> list[str]:
    """The first lines that the command prints; none if there is no command. WorkspaceError if it
    fails."""
    parts = session.agent_session.parts
    own, folder = parts.settings.status_line, str(parts.folder)
    if own == OFF or parts.managed_policy.no_hooks:
        return []
    find = find_project_status_line
    command = own or await asyncio.to_thread(find, parts.folder, parts.trust.open_store)
    if not command:
        return []
    is_free = parts.trust.is_trusted and parts.settings.sandbox != "required"
    folders = dict.fromkeys(("TREADLE_PROJECT_DIR", "CLAUDE_PROJECT_DIR"), folder)
    ended = await parts.workspace.execute(
        ("/bin/sh", "-c", command),
        cwd=folder,
        env={**(make_hook_environment(command, parts.folder) if own else {}), **folders},
        timeout=TIMEOUT_SECONDS,
        stdin=json.dumps(status).encode(),
        limit=MAX_BYTES,
        sandboxed=False if own and is_free else None,
    )
    if ended.timed_out:
        raise WorkspaceError(f"it did not end within {TIMEOUT_SECONDS:g} s")
    if ended.exit_code != 0:
        problem = ended.stderr.decode(errors="replace").strip()[:MAX_PROBLEM_CHARS]
        raise WorkspaceError(problem or f"it ended with the exit code {ended.exit_code}")
    lines = ended.stdout.decode(errors="replace").strip("\r\n").splitlines()[:MAX_LINES]
    return [redact(parts.secrets, line) for line in lines]
