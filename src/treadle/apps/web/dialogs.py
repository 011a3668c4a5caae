"""What the dialogs of a session show."""

from __future__ import annotations

from collections.abc import Collection

from treadle.apps.conversation.modes import MODE_DESCRIPTIONS
from treadle.apps.conversation.trust_dialog import describe_allow_rules
from treadle.apps.web.live_session import LiveSession
from treadle.apps.web.messages import ShowDialog, ShowMessage, TabReply
from treadle.apps.web.render.dialogs import (
    REWIND_TITLE,
    render_budget_dialog,
    render_choices,
    render_files_dialog,
    render_rewind_dialog,
    render_trust_dialog,
)
from treadle.core.errors import ConfigError


async def open_dialog(
    name: str, session: LiveSession, turn: str = "", include: Collection[str] = ()
) -> TabReply:
    """The dialog with this name; a message if there is nothing to choose. `include` are files of
    an undo or redo that are restored although the user changed them, too."""
    host = session.host
    match name:
        case "mode":
            modes = [(mode, mode, MODE_DESCRIPTIONS.get(mode, "")) for mode in host.modes]
            return ShowDialog(render_choices("Permission mode", "mode", modes, host.mode))
        case "model":
            models = [(name, name, about) for name, about in host.list_models()]
            return ShowDialog(render_choices("Model", "model", models, host.model.name))
        case "budget":
            return ShowDialog(render_budget_dialog(host.list_limits()))
        case "undo" | "redo" as action:
            title, changes = await host.preview_restore(action, include)
            if not changes:
                return ShowMessage(f"there is nothing to {action}")
            return ShowDialog(render_files_dialog(action, title, changes, include=include))
        case "rewind" if not turn:
            return ShowDialog(render_rewind_dialog(host.list_turns()))
        case "rewind":
            changes = await host.preview_rewind(turn)
            return ShowDialog(render_files_dialog("rewind", REWIND_TITLE, changes, turn))
        case "trust":
            programs = host.list_unapproved_programs()
            rules = describe_allow_rules(host.list_project_rules())
            return ShowDialog(render_trust_dialog(host.list_extension_files(), programs, rules))
    raise ConfigError(f"unknown dialog {name!r}")
