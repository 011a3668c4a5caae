from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from treadle.context.prompt import build_prompt, describe_environment, find_family, read_section
from treadle.models.catalog import card_for


def test_sections_stand_in_their_order_and_empty_ones_are_left_out():
    prompt = build_prompt(environment="ENV", memory="MEM", user_text="ADD")
    names = [section.name for section in prompt.sections if section.text]
    assert names == ["identity", "working", "changes", "environment", "memory", "added"]
    text = prompt.text
    assert text.index("ENV") < text.index("MEM") < text.index("ADD")


def test_it_is_the_same_byte_for_byte():
    day = datetime(2026, 11, 15, tzinfo=UTC)
    one = build_prompt(environment=describe_environment(Path("/repo"), today=day))
    two = build_prompt(environment=describe_environment(Path("/repo"), today=day))
    assert one.text == two.text


def test_it_is_short():
    assert len(build_prompt().text) < 3_000
    assert len(build_prompt(for_small_model=True).text) < 300


def test_a_person_can_see_what_fills_it():
    table = build_prompt(memory="x" * 4_000).format_sizes()
    assert "memory" in table
    assert "4,000 chars" in table


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("openrouter/anthropic/claude-opus-5-5", "claude"),
        ("openai/gpt-6.1-sol", "gpt"),
        ("openai/gpt-4", "open"),  # it does not write patches
        ("gemini/gemini-3.1-pro-preview", "gemini"),
        ("groq/openai/gpt-oss-120b", "open"),
        ("ollama/qwen3-coder", "open"),
    ],
)
def test_each_family_of_models_has_its_own_section(model: str, family: str):
    assert find_family(card_for(model)) == family
    sections = {one.name: one.text for one in build_prompt(family=family).sections}
    assert sections["family"] == read_section(family)
    assert len(sections["family"]) < 400
    assert len(sections["working"]) < 3_100
