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

from treadle.apps.conversation.local_host import LocalHost
from treadle.apps.conversation.modes import MODE_DESCRIPTIONS
from treadle.apps.settings.settings import SETTINGS_BY_NAME
from treadle.core.errors import ConfigError

MODE, MODEL, THINKING = "mode", "model", "thinking"
EFFORT_DESCRIPTIONS = {"auto": "as the model's maker recommends", "none": "as little as possible"}

ConfigOption = SessionConfigOptionSelect | SessionConfigOptionBoolean


def describe_modes(host: LocalHost) -> SessionModeState:
    modes = [
        SessionMode(id=mode, name=mode, description=MODE_DESCRIPTIONS.get(mode))
        for mode in host.modes
    ]
    if host.mode not in host.modes:  # from a settings file
        modes.append(SessionMode(id=host.mode, name=host.mode))
    return SessionModeState(current_mode_id=host.mode, available_modes=modes)


def list_options(host: LocalHost) -> list[ConfigOption]:
    modes = [(mode.id, mode.description or "") for mode in describe_modes(host).available_modes]
    return [
        _make_select(MODE, "Mode", "mode", host.mode, modes),
        _make_select(MODEL, "Model", "model", host.model.name, list_usable_models(host)),
        _make_select(THINKING, "Thinking", "thought_level", host.thinking, _list_efforts(host)),
    ]


async def change_option(host: LocalHost, option: str, value: object) -> None:
    """ConfigError if there is no such option, or it cannot have this value."""
    if option not in (MODE, MODEL, THINKING):
        known = f"{MODE}, {MODEL}, {THINKING}"
        raise ConfigError(f"there is no option {option!r}; the options are {known}")
    if not isinstance(value, str):
        raise ConfigError(f"the option {option!r} has a text as its value, not {value!r}")
    if option == MODE:
        host.change_mode(value)
    elif option == MODEL:
        await host.change_model(value)
    else:
        efforts = [name for name, _ in _list_efforts(host)]
        if value not in efforts:
            raise ConfigError(f"thinking cannot be {value!r}; it is one of {', '.join(efforts)}")
        await host.change_thinking(value)


def list_usable_models(host: LocalHost) -> list[tuple[str, str]]:
    """The model of the session, then the models whose providers have a key here."""
    from treadle.models.registry import KNOWN_PROVIDERS, find_key
    from treadle.models.registry.default_model import describe_card

    card = host.model
    usable = {
        provider.name
        for provider in KNOWN_PROVIDERS.values()
        if provider.needs_key and find_key(provider, os.environ)
    }
    rows = [(name, text) for name, text in host.list_models() if name.split("/")[0] in usable]
    return [(card.name, describe_card(card)), *(row for row in rows if row[0] != card.name)]


def _list_efforts(host: LocalHost) -> list[tuple[str, str]]:
    names = SETTINGS_BY_NAME["thinking"].choices
    efforts = [(effort, EFFORT_DESCRIPTIONS.get(effort, "")) for effort in names]
    if host.thinking not in names:  # a number of tokens
        efforts.append((host.thinking, "tokens"))
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
