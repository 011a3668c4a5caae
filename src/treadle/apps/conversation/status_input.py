"""What the command of the status line reads: a JSON object as Claude Code gives it to `statusLine`.

Names of Claude Code, so that scripts for it run unchanged; what is not known here is left out. Used
by the terminal and by `/statusline`.
"""

from __future__ import annotations

from typing import Any

from treadle._version import __version__
from treadle.apps.conversation.session.hosted_session import HostedSession

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
