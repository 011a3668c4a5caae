from __future__ import annotations

import pytest

from treadle.core.contracts.model import Model, ModelCard, ModelRequest, Reply
from treadle.core.errors import ConfigError
from treadle.core.transcript import Transcript, to_user_item
from treadle.models import Fallback, Scripted


def line(model: Model | None) -> list[str]:
    """The names in the order in which the loop would ask them."""
    names = []
    while model is not None:
        names.append(model.name)
        model = model.fallback
    return names


def named(name: str, fallback: Model | None = None) -> Scripted:
    return Scripted([f"I am {name}"], name=name, fallback=fallback)


async def test_the_first_answers_and_gives_its_name_and_card():
    first = Scripted(["I am one"], name="one", card=ModelCard("one", window=1234))
    model = Fallback(first, named("two"))
    assert (model.name, model.card.window) == ("one", 1234)
    events = [
        event async for event in model.stream(ModelRequest(Transcript([to_user_item("who?")])))
    ]
    last = events[-1]
    assert isinstance(last, Reply)
    assert last.item.text == "I am one"


def test_the_others_follow_in_order():
    assert line(Fallback(named("one"), named("two"), named("three"))) == ["one", "two", "three"]
    assert line(Fallback(named("one"))) == ["one"]


def test_a_models_own_fallback_comes_before_the_next_in_line():
    one = named("one", fallback=named("one-small"))
    two = Fallback(named("two"), named("two-small"))
    assert line(Fallback(one, two, named("three"))) == [
        "one",
        "one-small",
        "two",
        "two-small",
        "three",
    ]


async def test_closing_closes_every_model():
    models = [named("one"), named("two"), named("three")]
    await Fallback(*models).aclose()
    assert all(model.closed for model in models)


def test_a_string_names_a_model_or_several_by_commas():
    assert line(Fallback("anthropic/one, openai/two", named("three"), "groq/four")) == [
        "anthropic/one",
        "openai/two",
        "three",
        "groq/four",
    ]


def test_a_list_of_models_is_an_error_that_says_how_to_write_it():
    with pytest.raises(ConfigError, match=r"Fallback got \[.*; expected one name or model after"):
        Fallback([named("one"), named("two")])  # type: ignore[arg-type]
