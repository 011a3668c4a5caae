from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.models.output_schema import build_schema, make_strict, parse_structured_output


class Person(msgspec.Struct):
    name: str
    age: int
    friends: list[Person] = []
    nick: str | None = None
    mood: Literal["good", "bad"] = "good"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 7


class Movie(TypedDict):
    title: str
    year: int


class Car(pydantic.BaseModel):
    wheels: int


PLAIN = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
    "required": ["a"],
    "additionalProperties": False,
}


def test_every_kind_of_type_gives_an_object_schema_and_comes_back():
    for kind, text, value in (
        (Person, '{"name": "A", "age": 3}', Person("A", 3)),
        (Point, '{"x": 1}', Point(1, 7)),
        (Movie, '{"title": "M", "year": 1931}', {"title": "M", "year": 1931}),
        (PLAIN, '{"a": 1, "b": "x"}', {"a": 1, "b": "x"}),
        (Car, '{"wheels": 4}', Car(wheels=4)),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (int, '{"value": 5}', 5),
        (Point | None, '{"value": null}', None),
        (dict[str, int], '{"k": 1}', {"k": 1}),
    ):
        schema = build_schema(kind)
        assert schema["type"] == "object", kind
        assert "$ref" not in schema
        assert parse_structured_output(kind, text) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"x": 1, "y": 2}',
        '  {"x": 1, "y": 2}\n',
        'Here you are:\n```json\n{"x": 1, "y": 2}\n```\nAnything else?',
        '```\n{"x": 1, "y": 2}\n```',
        'The answer is {"x": 1, "y": 2}. Good luck!',
        '{"x": "1", "y": 2}',
    ],
)
def test_an_answer_is_found_in_what_models_write_around_it(text):
    assert parse_structured_output(Point, text) == Point(1, 2)


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (Point, "I cannot say.", "no complete JSON value"),
        (Point, '{"x": 1, "y": ', "no complete JSON value"),
        (Point, '{"y": 1}', "missing required field `x`"),
        (Point, '{"x": "one"}', r"Expected `int`, got `str` - at `\$.x`"),
        (PLAIN, '{"b": "x"}', r"\$ lacks the property 'a'"),
        (PLAIN, '{"a": true}', r"\$\.a must be integer, not boolean"),
        (PLAIN, '{"a": 1, "b": "z"}', r"\$\.b must be one of 'x', 'y', not 'z'"),
        (PLAIN, '{"a": 1, "c": 1}', "'c' that the schema does not allow"),
    ],
)
def test_a_mismatch_says_in_words_for_the_model_what_is_wrong_and_where(kind, text, problem):
    with pytest.raises(ValueError, match=problem) as caught:
        parse_structured_output(kind, text)
    assert "Answer again" in str(caught.value)


def test_a_pydantic_mismatch_is_a_plain_value_error():
    with pytest.raises(ValueError, match=r"wheels.*Answer again"):
        parse_structured_output(Car, '{"wheels": "four"}')


def objects(schema: Any) -> list[dict[str, Any]]:
    found = []
    if isinstance(schema, dict):
        if "properties" in schema:
            found.append(schema)
        for inner in schema.values():
            found += objects(inner)
    elif isinstance(schema, list):
        for inner in schema:
            found += objects(inner)
    return found


def test_the_strict_form_closes_every_object_and_requires_every_property():
    strict = make_strict(build_schema(Person))
    assert strict is not None
    assert objects(strict)
    for one in objects(strict):
        assert one["additionalProperties"] is False
        assert one["required"] == list(one["properties"])
    assert "default" not in str(strict)


def test_a_null_that_stands_for_absent_is_taken_out_again():
    text = '{"name": "A", "age": 3, "friends": null, "nick": null, "mood": null}'
    assert parse_structured_output(Person, text) == Person("A", 3)
    nested = '{"name": "A", "age": 3, "friends": [{"name": "B", "age": 1, "mood": null}]}'
    assert parse_structured_output(Person, nested).friends == [Person("B", 1)]


def test_an_object_with_free_names_has_no_strict_form():
    assert make_strict(build_schema(dict[str, int])) is None
    assert make_strict({"type": "object"}) is None
    assert make_strict(PLAIN) is not None
    assert build_schema(dict[str, int], strict=True) == build_schema(dict[str, int])
    assert build_schema(Point, strict=True)["required"] == ["x", "y"]


people: st.SearchStrategy[Person] = st.deferred(
    lambda: st.builds(
        Person,
        st.text(),
        st.integers(-(2**53), 2**53),
        st.lists(people, max_size=1),
        st.none() | st.text(),
        st.sampled_from(["good", "bad"]),
    )
)


@settings(max_examples=50)
@given(people)
def test_any_instance_survives_the_way_through_text(person):
    assert parse_structured_output(Person, msgspec.json.encode(person).decode()) == person
