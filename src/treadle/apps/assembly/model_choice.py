"""The models of the coding agent: that of the settings or of this machine, and what wraps it.

Used by coding_agent.py, assemble.py and `treadle doctor`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from treadle.apps.assembly.redaction import RedactingModel
from treadle.apps.settings.managed_policy import read_policy
from treadle.apps.settings.settings import Settings
from treadle.context.cache_monitor import CacheMonitor, HeadLog
from treadle.core.contracts.model import Model
from treadle.core.errors import ConfigError, UnknownModel
from treadle.core.transcript.items import AssistantItem
from treadle.core.transcript.state import SessionState

PLAYER_MODEL = "apply/recorded-calls"  # in the log: `treadle apply` made the calls, and no model


async def choose_model(settings: Settings) -> tuple[Model, str]:
    """The model of the settings, or the default model of this machine; and a line about it."""
    from treadle.models.registry.default_model import find_default_model

    if settings.model:
        return choose_model_now(settings)
    default = await find_default_model()
    if not default.is_available:
        raise ConfigError(default.summary)
    return create_model(default.model, settings), default.summary


def choose_model_now(settings: Settings) -> tuple[Model, str]:
    """The same without `await`: local servers are asked in another thread, for a moment."""
    from treadle.models.registry.default_model import describe_card

    if settings.model:
        model = _create_model_of("model", settings)
        return model, f"{model.name} ({settings.origin('model')}): {describe_card(model.card)}"
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(choose_model(settings))).result()


def create_model(name: str, settings: Settings) -> Model:
    """The model of this name; a small one gets the aids of the engine, unless they are off."""
    from treadle.models import registry

    check_allowed(name, settings)
    model = registry.model(name, aliases=settings.aliases, timeouts=settings.model_timeouts)
    if not settings.assist or not is_small_model(model):
        return model
    from treadle.models.embedded import Assisted, Embedded

    return Assisted(model) if isinstance(model, Embedded) else model


def check_allowed(name: str, settings: Settings) -> None:
    """ConfigError if the managed policy does not allow a model of these names, at its address."""
    policy = read_policy()
    if not policy.models:
        return
    from treadle.models.registry.model_names import resolve_model
    from treadle.models.registry.providers import find_base_url

    for part in filter(None, map(str.strip, name.split(","))):
        provider, model_name, alias = resolve_model(part, settings.aliases)
        url = (alias and alias.base_url) or find_base_url(provider, os.environ)
        host = (urlsplit(url).hostname or url) if url else ""
        policy.check_model(f"{provider.name}/{model_name}", host)


def create_small_model(settings: Settings) -> Model | None:
    return _create_model_of("small_model", settings) if settings.small_model else None


def _create_model_of(setting: str, settings: Settings) -> Model:
    """The model that a setting names; an error names the place where the setting is."""
    try:
        return create_model(getattr(settings, setting), settings)
    except UnknownModel as error:
        if setting not in settings.origins:
            raise
        raise UnknownModel(f"{settings.origins[setting]}: {error}") from error


def is_small_model(model: Model) -> bool:
    """Whether the model can handle only a short prompt and a few tools."""
    return _is_small_name(model.name)


def _is_small_name(name: str) -> bool:
    return name.startswith("embedded")


def has_tool_search(model: Model) -> bool:
    """Whether the provider finds deferred tools itself, also for every fallback."""
    return all("tool_search" in one.card.abilities for one in _iterate_fallbacks(model))


def check_session_model(model: Model, state: SessionState | None, *, is_named: bool) -> str:
    """A note for a continued session that another model answered until now; "" if it is the same.

    An embedded model takes over from a larger one only if the user named it: ConfigError.
    """
    items = () if state is None else reversed(state.transcript)
    replies = (one for one in items if isinstance(one, AssistantItem))
    reply = next((one for one in replies if one.model != PLAYER_MODEL), None)
    if reply is None or reply.model in ("", *[one.card.name for one in _iterate_fallbacks(model)]):
        return ""
    if is_small_model(model) and not is_named and not _is_small_name(reply.model):
        raise ConfigError(
            f"this session used {reply.model}, but no key is set and no local server answers. "
            f"Set the key or start the server; --model {model.name} continues it with that "
            "embedded model"
        )
    return f"this session used {reply.model} until now; {model.name} continues it"


def _iterate_fallbacks(model: Model) -> Iterator[Model]:
    used: Model | None = model
    while used is not None:
        yield used
        used = used.fallback


def wrap_model(
    model: Model, secrets: tuple[str, ...], head_log: HeadLog | None, *, suspend: bool
) -> Model:
    is_small = is_small_model(model)
    if secrets:
        model = RedactingModel(model, secrets)
    if not is_small:
        model = CacheMonitor(model, head_log)
    if suspend and head_log is not None:
        from treadle.apps.assembly.suspend import SuspendOnRateLimit

        model = SuspendOnRateLimit(model, head_log.session_id)
    return model
