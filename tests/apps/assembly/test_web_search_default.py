"""Whether the provider of a model may search the web: the setting, the model, the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import treadle
from treadle.models import Scripted
from treadle.models.catalog import card_for

CLAUDE = card_for("anthropic/claude-sonnet-5-5")


async def may_search(folder: Path, card: Any = CLAUDE, **settings: str) -> bool:
    model = Scripted(["done"])
    model.card = card
    more: dict[str, Any] = {"sandbox": "off", "settings": settings}
    async with treadle.coding_agent(folder, model=model, trust=True, **more) as agent:
        await agent.run("hi")
    return model.requests[0].options.web_search


async def test_a_model_with_a_known_price_searches_by_default(own_place: Path) -> None:
    unknown = msgspec.structs.replace(CLAUDE, input_price=None, output_price=None)
    without = msgspec.structs.replace(CLAUDE, abilities=CLAUDE.abilities - {"search"})
    assert await may_search(own_place)
    assert not await may_search(own_place, web_search="off")
    assert not await may_search(own_place, unknown), "a server of the user's choice"
    assert await may_search(own_place, unknown, web_search="provider")
    assert not await may_search(own_place, without)


@pytest.mark.parametrize("kind", ["deny", "ask"])
async def test_a_rule_against_searches_switches_it_off(own_place: Path, kind: str) -> None:
    folder = own_place / "cwd" / ".claude"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({"permissions": {kind: ["WebSearch"]}}))
    assert not await may_search(folder.parent)
    assert not await may_search(folder.parent, web_search="provider")
