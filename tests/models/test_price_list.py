from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from genai_prices.data_snapshot import get_snapshot

from scripts import update_prices
from treadle.models import price_list
from treadle.models.price_list import PRICE_FIELDS, PRICE_LIST_FILE, ListedCard, find_listed


def find_expected(provider: str, model: str) -> ListedCard | None:
    """What genai-prices has, if it knows the model and what input and output cost."""
    try:
        _, entry = get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None
    prices = update_prices.find_highest_prices(entry, datetime.now(UTC).date())
    if prices["input"] is None or prices["output"] is None:
        return None
    return ListedCard(prices, entry.context_window or 0)


@pytest.mark.parametrize("provider", update_prices.PROVIDERS)
def test_every_price_agrees_with_genai_prices(provider: str):
    models = next(one.models for one in get_snapshot().providers if one.id == provider)
    for model in models:
        expected = find_expected(provider, model.id)
        assert find_listed(provider, model.id) == expected, (
            f"{provider}/{model.id}: run scripts/update_prices.py"
        )


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-5.2-20251211"),  # a date without dashes
        ("openrouter", "OpenAI/GPT-5-Pro"),
        ("azure", "gpt-5-pro"),  # at the price of OpenAI
        ("google", "claude-3-opus"),  # at the price of Anthropic
        ("openai", "no-such-model"),
    ],
)
def test_a_name_is_found_as_genai_prices_finds_it(provider: str, model: str):
    assert find_listed(provider, model) == find_expected(provider, model)


def test_an_unknown_provider_has_no_prices():
    assert find_listed("someone", "gpt-5") is None


def test_a_price_holds_from_its_first_day(monkeypatch: pytest.MonkeyPatch):
    rows = [["", 1.0, 2.0, None, None], ["2020-01-01", 3.0, 4.0, 0.5, None]]
    future = ["9999-01-01", 9.0, 9.0, None, None]
    row = [{"equals": "new"}, [*rows, future]]
    listed = {"shop": {"fallbacks": [], "models": [row]}}
    prices = msgspec.convert({"providers": listed}, price_list._PriceList)
    monkeypatch.setattr(price_list, "_load_price_list", lambda: prices)
    values = (3.0, 4.0, 0.5, None)
    assert find_listed("shop", "new") == ListedCard(dict(zip(PRICE_FIELDS, values, strict=True)), 0)
    find_listed.cache_clear()


def test_the_file_names_its_source_and_the_license():
    head = msgspec.json.decode(PRICE_LIST_FILE.read_bytes())
    assert head["source"].startswith("genai-prices ")
    assert "MIT License" in head["license"]
    assert "Copyright (c) Pydantic" in head["license"]
