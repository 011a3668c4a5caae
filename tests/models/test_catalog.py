from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import TieredPrices

from treadle.core.contracts.model import ModelCard, ModelOptions
from treadle.core.transcript import Usage
from treadle.models.catalog import card_for, compute_cost, list_models
from treadle.models.profiles import resolve_thinking


@pytest.mark.parametrize(
    "name",
    [
        "anthropic/claude-sonnet-4-5",
        "claude-sonnet-4-5-20250929",
        "claude-sonnet-4-5@20250929",
        "anthropic/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "openrouter/anthropic/claude-sonnet-4.5",
    ],
)
def test_a_model_is_known_under_all_the_names_that_it_goes_by(name):
    card = card_for(name)
    assert card.name == name
    assert (card.window, card.max_output) == (200_000, 64_000)
    assert "budget" in card.abilities


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("openai/gpt-5", 1.25),
        ("gpt-5-2025-08-07", 1.25),
        ("openai-chat/gpt-5-mini", 0.25),
        ("azure/gpt-5-nano", 0.05),
        ("claude-sonnet-4-0", 3),
        ("groq/openai/gpt-oss-120b", 0.15),
        ("openrouter/openai/gpt-5", 1.25),
        ("ollama/anything", 0.0),
        ("openrouter/someone/small:free", 0.0),
    ],
)
def test_prices_of_common_models_come_from_the_table(name, price):
    assert card_for(name).input_price == price


@pytest.mark.parametrize("name", ["openai/gpt-5-pro", "someone/gpt-5"])
def test_a_variant_or_another_seller_does_not_get_the_price_of_the_plain_model(name):
    card = card_for(name)
    assert card.window == 400_000
    assert card.input_price is None


def test_a_version_that_is_not_listed_is_not_taken_for_an_older_one():
    card = card_for("anthropic/claude-opus-4-9")
    assert "effort" in card.abilities
    assert "budget" not in card.abilities
    assert "Not in the catalog" in card.note


@pytest.mark.parametrize(
    ("name", "searches"),
    [
        ("openai/gpt-6-sol", True),
        ("anthropic/claude-opus-5", True),
        ("openai-chat/gpt-6-sol", False),
        ("azure/gpt-6-sol", False),
        ("openrouter/openai/gpt-6-sol", False),
        ("openrouter/anthropic/claude-opus-5", False),
    ],
)
def test_only_the_makers_own_interface_finds_deferred_tools(name, searches):
    assert ("tool_search" in card_for(name).abilities) is searches


def test_an_unknown_model_works_with_cautious_defaults_and_no_price():
    card = card_for("someone/something")
    assert (card.window, card.max_output, card.input_price) == (128_000, 8_192, None)
    assert "tools" in card.abilities
    assert "128,000" in card.note
    assert compute_cost(card, Usage(input=1000, output=1000)) is None


def test_prices_beyond_the_table_are_found_when_they_are_asked_for():
    assert card_for("groq/llama-3.3-70b-versatile").input_price is None
    card = card_for("groq/llama-3.3-70b-versatile", prices=True)
    assert card.input_price == pytest.approx(0.59)
    assert compute_cost(card, Usage(output=1_000_000)) == pytest.approx(0.79)


def test_a_request_costs_by_kind_of_token_with_cache_reads_and_writes():
    card = card_for("anthropic/claude-sonnet-4-5")
    usage = Usage(input=1_000, output=2_000, cache_read=10_000, cache_write=4_000, requests=1)
    expected = (1_000 * 3 + 2_000 * 15 + 10_000 * 0.3 + 4_000 * 3.75) / 1e6
    assert compute_cost(card, usage) == pytest.approx(expected)
    longer = expected + 4_000 * (6 - 3.75) / 1e6
    assert compute_cost(card, usage, cache_write_1h=4_000) == pytest.approx(longer)


def test_a_cost_is_never_negative_when_a_count_is_missing():
    card = ModelCard("x", input_price=1, output_price=1, cache_write_price=5)
    assert compute_cost(card, Usage(input=10), cache_write_1h=1_000) == pytest.approx(10 / 1e6)


def test_cached_tokens_cost_as_input_where_they_have_no_price_of_their_own():
    card = ModelCard("someone/plain", input_price=2.0, output_price=4.0)
    usage = Usage(input=1_000_000, cache_read=1_000_000, cache_write=1_000_000)
    assert compute_cost(card, usage) == pytest.approx(6.0)


def test_a_long_request_costs_more_where_the_provider_says_so():
    card = card_for("openai/gpt-5.4")
    assert compute_cost(card, Usage(input=272_000)) == pytest.approx(0.272 * 2.5)
    assert compute_cost(card, Usage(input=200_000, cache_read=72_001)) == pytest.approx(
        (0.2 * 2.5 + 0.072001 * 0.25) * 2
    )
    small = card_for("claude-haiku-5-5")
    assert compute_cost(small, Usage(input=100_001, output=1_000)) == pytest.approx(
        (100_001 * 0.1 + 1_000 * 0.5) * 5 / 1e6
    )


KINDS = ("input", "output", "cache_read", "cache_write")


def look_up(name: str) -> tuple[int | None, dict[str, float], dict[str, tuple[int, float]]]:
    """Window, prices and prices of long requests in genai-prices, at their highest from today on.

    Some have cheaper hours or first months.
    """
    provider, _, model = name.partition("/")
    seller = "google" if provider == "gemini" else provider
    _, entry = get_snapshot().find_provider_model(model, None, seller, None)
    today = datetime.now(UTC).replace(minute=30)
    days = (today, today + timedelta(days=400))
    base: dict[str, float] = {}
    long: dict[str, tuple[int, float]] = {}
    for moment in [day.replace(hour=hour) for day in days for hour in range(24)]:
        prices = entry.get_prices(moment)
        for kind in KINDS:
            value = getattr(prices, f"{kind}_mtok")
            if isinstance(value, TieredPrices):
                (tier,) = value.tiers
                long[kind] = (tier.start, float(tier.price))
                value = value.base
            if value is not None:
                base[kind] = max(base.get(kind, 0.0), float(value))
    return entry.context_window, base, long


@pytest.mark.parametrize("name", list_models())
def test_the_table_agrees_with_genai_prices(name: str):
    card = card_for(name)
    window, base, long = look_up(name)
    assert {kind: getattr(card, f"{kind}_price") for kind in KINDS} == pytest.approx(
        {kind: base.get(kind) for kind in KINDS}
    )
    assert card.window == (window or card.window)
    for kind, (threshold, price) in long.items():
        prompt = Usage(input=threshold + 1)
        total = compute_cost(card, prompt + Usage(**{kind: 1_000_000}))
        assert total == pytest.approx((compute_cost(card, prompt) or 0) + price)
    above = compute_cost(card, Usage(input=card.window))
    assert bool(long) or above == pytest.approx(card.window * base["input"] / 1e6)


@pytest.mark.parametrize(
    ("name", "window", "has_images"),
    [
        ("openai/gpt-4", 8_192, False),
        ("openai/gpt-4-0613", 8_192, False),
        ("openai/gpt-4-turbo-2024-04-09", 128_000, True),
        ("openai/gpt-3.5-turbo", 16_385, False),
        ("openai/gpt-3.5-turbo-16k", 16_385, False),
        ("openai/gpt-4-32k", 32_000, False),
        ("openai/gpt-4.5-preview", 128_000, True),
    ],
)
def test_older_models_have_their_own_window_and_do_not_think(
    name: str, window: int, has_images: bool
):
    card = card_for(name)
    assert card.window == window
    assert ("images" in card.abilities) is has_images
    assert not {"thinking", "effort", "documents"} & card.abilities


def test_every_row_has_room_for_its_own_output():
    for name in list_models():
        card = card_for(name)
        assert 0 < card.max_output < card.window, name


@pytest.mark.parametrize(
    ("name", "is_assumed"),
    [("openai/gpt-5", False), ("openai/gpt-5-pro", True), ("who/knows", True), ("ollama/x", True)],
)
def test_a_card_says_whether_its_limits_are_assumed(name, is_assumed):
    assert card_for(name).is_assumed is is_assumed


def test_without_need_nothing_slow_is_imported():
    program = (
        "import sys; from treadle.models.catalog import *; from treadle.core.transcript import *;"
        "assert compute_cost(card_for('openai/gpt-5', prices=True), Usage(input=10));"
        "assert compute_cost(card_for('who/knows'), Usage(input=10)) is None;"
        "sys.exit('genai_prices' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "recommended", "off"),
    [
        ("anthropic/claude-opus-5-5", "medium", "low"),
        ("anthropic/claude-sonnet-4-5-20250929", "31999", None),
        ("openrouter/anthropic/claude-opus-4.8", "high", None),
        ("openai/gpt-6.1-sol", "low", "low"),
        ("openai/gpt-5-mini", "medium", "minimal"),
        ("openai/gpt-4.1", None, None),
        ("gemini/gemini-3.1-pro-preview", "high", "low"),
        ("gemini/gemini-2.5-flash", "8192", "none"),
        ("mistral/mistral-large-4", None, None),
        ("ollama/qwen3", None, "none"),
        ("unknown/model", None, None),
    ],
)
def test_thinking_is_what_the_maker_recommends_for_agents(
    name: str, recommended: str | None, off: str | None
):
    card = card_for(name)
    on = resolve_thinking(ModelOptions(thinking="auto"), card)
    assert on == (int(recommended) if recommended and recommended.isdecimal() else recommended)
    for word in ("none", "off", 0):
        assert resolve_thinking(ModelOptions(thinking=word), card) == off
    assert resolve_thinking(ModelOptions(thinking="max"), card) == "max"
    assert resolve_thinking(ModelOptions(), card) is None
