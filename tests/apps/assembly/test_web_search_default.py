"""Whether the provider of a model may search the web: the setting, the model, the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import treadle
from treadle.core.contracts.model import ModelCard
from treadle.models import Scripted
from treadle.models.registry.create import create_models


def make_card(**environ: str) -> ModelCard:
    """The card of a model as the coding agent makes it."""
    given = {"ANTHROPIC_API_KEY": "k", **environ}
    return create_models("anthropic/claude-sonnet-5-5", environ=given)[0].card


async def may_search(folder: Path, card: ModelCard, **settings: str) -> bool:
    model = Scripted(["done"])
    model.card = card
    more: dict[str, Any] = {"sandbox": "off", "settings": settings}
    async with treadle.coding_agent(folder, model=model, trust=True, **more) as agent:
        await agent.run("hi")
    return model.requests[0].options.web_search


async def test_a_model_at_its_makers_address_searches_by_default(own_place: Path) -> None:
    card, other = make_card(), make_card(ANTHROPIC_BASE_URL="https://gateway.example")
    assert await may_search(own_place, card)
    assert not await may_search(own_place, card, web_search="off")
    assert not await may_search(own_place, other)
    assert await may_search(own_place, other, web_search="provider")


@pytest.mark.parametrize("kind", ["deny", "ask"])
async def test_a_rule_against_searches_switches_it_off(own_place: Path, kind: str) -> None:
    folder = own_place / "cwd" / ".claude"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({"permissions": {kind: ["WebSearch"]}}))
    assert not await may_search(folder.parent, make_card())
    assert not await may_search(folder.parent, make_card(), web_search="provider")
