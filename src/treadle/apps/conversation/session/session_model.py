"""The model of a session, and how much it thinks."""

from __future__ import annotations

from treadle.apps.assembly.model_choice import check_allowed
from treadle.apps.conversation.session.lifecycle import SessionLifecycle
from treadle.core.contracts.model import ModelCard


class SessionModel:
    def __init__(self, session: SessionLifecycle) -> None:
        self._session = session

    @property
    def card(self) -> ModelCard:
        return self._session.agent_session.model.card

    def list_names(self) -> list[tuple[str, str]]:
        """Names that `change` takes, each with a description."""
        from treadle.models.catalog import card_for, list_models
        from treadle.models.registry.default_model import describe_card

        return [(name, describe_card(card_for(name))) for name in list_models()]

    async def change(self, name: str) -> None:
        from treadle.models import registry

        settings = self._session.load_settings()
        check_allowed(name, settings)
        chosen = registry.model(name, aliases=settings.aliases)  # raises if the name is unknown
        try:
            registry.check_keys(chosen)
        finally:
            await chosen.aclose()
        await self._change_flag("model", name)

    @property
    def thinking(self) -> str:
        """An effort, a number of tokens, or "auto"."""
        return self._session.load_settings().thinking

    async def change_thinking(self, effort: str) -> None:
        await self._change_flag("thinking", effort)

    async def _change_flag(self, setting: str, value: str) -> None:
        flags = {**self._session.choices.flags, setting: value}
        await self._session.reconfigure(flags=flags, has_notes=True)
