"""What the user can choose for a session in the editor: permission mode, model, thinking.

Modes are offered twice: as modes, which older editors know, and as an option. Used by session.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from acp.schema import (
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)

from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.session.session_permissions import MODE_DESCRIPTIONS
from treadle.apps.settings.settings import SETTINGS_BY_NAME
from treadle.core.errors import ConfigError

MODE, MODEL, THINKING = "mode", "model", "thinking"
EFFORT_DESCRIPTIONS = {"auto": "as the model's maker recommends", "none": "as little as possible"}

ConfigOption = SessionConfigOptionSelect | SessionConfigOptionBoolean


def describe_modes(session: HostedSession) -> SessionModeState:
    modes = [
        SessionMode(id=mode, name=mode, description=MODE_DESCRIPTIONS.get(mode))
        for mode in session.permissions.modes
    ]
    current = session.permissions.mode
    if current not in session.permissions.modes:  # from a settings file
        modes.append(SessionMode(id=current, name=current))
    return SessionModeState(current_mode_id=current, available_modes=modes)


def list_options(session: HostedSession) -> list[ConfigOption]:
    modes = [(mode.id, mode.description or "") for mode in describe_modes(session).available_modes]
    model, thinking = session.model.card.name, session.model.thinking
    return [
        _make_select(MODE, "Mode", "mode", session.permissions.mode, modes),
        _make_select(MODEL, "Model", "model", model, list_usable_models(session)),
        _make_select(THINKING, "Thinking", "thought_level", thinking, _list_efforts(session)),
    ]


async def change_option(session: HostedSession, option: str, value: object) -> None:
    """ConfigError if there is no such option, or it cannot have this value."""
    if option not in (MODE, MODEL, THINKING):
        known = f"{MODE}, {MODEL}, {THINKING}"
        raise ConfigError(f"there is no option {option!r}; the options are {known}")
    if not isinstance(value, str):
        raise ConfigError(f"the option {option!r} has a text as its value, not {value!r}")
    if option == MODE:
        session.permissions.change_mode(value)
    elif option == MODEL:
        await session.model.change(value)
    else:
        efforts = [name for name, _ in _list_efforts(session)]
        if value not in efforts:
            raise ConfigError(f"thinking cannot be {value!r}; it is one of {', '.join(efforts)}")
        await session.model.change_thinking(value)


def list_usable_models(session: HostedSession) -> list[tuple[str, str]]:
    """The model of the session, then the models whose providers have a key here."""
    from treadle.models.registry import KNOWN_PROVIDERS, find_key
    from treadle.models.registry.default_model import describe_card

    card = session.model.card
    usable = {
        provider.name
        for provider in KNOWN_PROVIDERS.values()
        if provider.needs_key and find_key(provider, os.environ)
    }
    rows = [
        (name, text) for name, text in session.model.list_names() if name.split("/")[0] in usable
    ]
    return [(card.name, describe_card(card)), *(row for row in rows if row[0] != card.name)]


def _list_efforts(session: HostedSession) -> list[tuple[str, str]]:
    names = SETTINGS_BY_NAME["thinking"].choices
    efforts = [(effort, EFFORT_DESCRIPTIONS.get(effort, "")) for effort in names]
    if session.model.thinking not in names:  # a number of tokens
        efforts.append((session.model.thinking, "tokens"))
    return efforts


def _make_select(
    name: str, title: str, category: str, current: str, choices: Sequence[tuple[str, str]]
) -> SessionConfigOptionSelect:
    options = [
        SessionConfigSelectOption(value=value, name=value, description=text or None)
        for value, text in choices
    ]
    return SessionConfigOptionSelect(
        type="select",
        id=name,
        name=title,
        category=category,  # type: ignore[arg-type]  # one of the names of the protocol
        current_value=current,
        options=options,
    )
