from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core.errors import ConfigError
from treadle.models.output_schema import (
    get_output_type,
    make_strict,
    read_partial_output,
)


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
        schema = get_output_type(kind).schema
        assert schema["type"] == "object", kind
        assert "$ref" not in schema
        assert get_output_type(kind).parse(text) == value


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
    assert get_output_type(Point).parse(text) == Point(1, 2)


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (Point, "I cannot say.", "the answer has no complete JSON value"),
        (Point, '{"x": 1, "y": ', "the answer has no complete JSON value"),
        (Point, '{"y": 1}', "x: missing, expected an integer"),
        (Point, '{"x": "one"}', 'x: expected an integer, got "one"'),
        (Car, '{"wheels": "four"}', 'wheels: expected an integer, got "four"'),
        (PLAIN, '{"b": "x"}', "a: missing, expected an integer"),
        (PLAIN, '{"a": true}', "a: expected an integer, got true"),
        (PLAIN, '{"a": 1, "b": "z"}', 'b: expected one of "x", "y", got "z"'),
        (PLAIN, '{"a": 1, "c": 1}', "c: not known, expected only a, b"),
        (list[Point], '{"value": [{"x": 1}, {}]}', r"\[1\].x: missing, expected an integer"),
        (Literal["red", "blue"], '{"value": "green"}', 'expected one of "red", "blue", got "gre'),
    ],
)
def test_a_mismatch_says_in_words_for_the_model_what_is_wrong_and_where(kind, text, problem):
    with pytest.raises(ValueError, match=problem) as caught:
        get_output_type(kind).parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Point | Car, '{"value": {"wheels": 4}}', Car(wheels=4)),
        (Point | Car, '{"x": 1}', Point(1)),
        (list[Car], '[{"wheels": 3}]', [Car(wheels=3)]),
        (dict[str, Car], '{"a": {"wheels": 3}}', {"a": Car(wheels=3)}),
        (Car | None, "null", None),
        (Literal["red", "blue"], "red", "red"),
        (Literal["red", "blue"], '"blue"', "blue"),
        (str, "It is cold.", "It is cold."),
        (str, '{"value": "cold"}', "cold"),
        (str, 'Write {"a": 1}.', 'Write {"a": 1}.'),
        (str | Car, "I do not know.", "I do not know."),
        (str | Car, '```json\n{"wheels": 4}\n```', Car(wheels=4)),
        (int, "42", 42),
        (bool, "true", True),
        (Annotated[int, msgspec.Meta(ge=3)], "3", 3),
        ({"type": "array", "items": {"type": "integer"}}, '{"value": [1, "2"]}', [1, 2]),
        (tuple[int, str], '{"value": [1, "a"]}', (1, "a")),
    ],
)
def test_any_type_can_be_an_output(kind, text, value):
    assert get_output_type(kind).parse(text) == value


@pytest.mark.parametrize("kind", [object(), 3, "Point", print, {"type": "strange"}, {"anyOf": 3}])
def test_what_is_neither_a_type_nor_a_schema_is_refused_at_once(kind):
    with pytest.raises(ConfigError, match="output"):
        get_output_type(kind)


class Draft(pydantic.BaseModel):
    title: str = ""
    points: list[Point] = []


def test_values_can_be_read_while_they_are_written():
    text = '{"title": "A \\"new\\" plan", "points": [{"x": 1, "y": 2}, {"x": 3, "y": 45}]}'
    seen: list[Any] = []
    for end in range(len(text) + 1):
        value = read_partial_output(Draft, text[:end])
        if value is not None and (not seen or seen[-1] != value):
            seen.append(value)
    assert seen[0] == Draft()
    assert Draft(title='A "n') in seen
    assert Draft(title='A "new" plan', points=[Point(1)]) in seen, "the rest has a default"
    assert Draft(title='A "new" plan', points=[Point(1, 2)]) in seen
    assert Point(3, 4) not in [point for draft in seen for point in draft.points]
    assert seen[-1] == get_output_type(Draft).parse(text)


def test_a_partial_value_of_other_kinds():
    assert read_partial_output(Point, '{"y": 1, "x"') is None, "x is required"
    assert read_partial_output(str, '{"value": "hel') == "hel"
    assert read_partial_output(str, "hel") == "hel"
    assert read_partial_output(list[int], "```json\n[1, 2, 3") == [1, 2]
    assert read_partial_output(PLAIN, '{"b": "x"') == {"b": "x"}
    assert read_partial_output(Literal["red"], '{"value": "re') is None
    assert read_partial_output(int, "I think") is None
    assert read_partial_output(Draft, '{"title": "\\ud83d') == Draft()


def test_the_strict_form_says_limits_in_the_description():
    class Order(pydantic.BaseModel):
        seats: int = pydantic.Field(ge=1, description="How many")
        home: Annotated[tuple[int, int], "Where"]
        link: pydantic.HttpUrl

    strict = get_output_type(Order).strict_schema
    seats = strict["properties"]["seats"]
    expected = "How many Must be an integer of at least 1."
    assert seats == {"type": "integer", "description": expected}
    assert "prefixItems" not in str(strict)
    assert "format" not in strict["properties"]["link"]
    with pytest.raises(ValueError, match="seats: expected a number of at least 1, got 0"):
        get_output_type(Order).parse('{"seats": 0, "home": [1, 2], "link": "http://a.b"}')


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
    strict = make_strict(get_output_type(Person).schema)
    assert strict is not None
    assert objects(strict)
    for one in objects(strict):
        assert one["additionalProperties"] is False
        assert one["required"] == list(one["properties"])
    assert "default" not in str(strict)


def test_a_null_that_stands_for_absent_is_taken_out_again():
    text = '{"name": "A", "age": 3, "friends": null, "nick": null, "mood": null}'
    assert get_output_type(Person).parse(text) == Person("A", 3)
    nested = '{"name": "A", "age": 3, "friends": [{"name": "B", "age": 1, "mood": null}]}'
    assert get_output_type(Person).parse(nested).friends == [Person("B", 1)]


def test_an_object_with_free_names_has_no_strict_form():
    assert make_strict(get_output_type(dict[str, int]).schema) is None
    assert make_strict({"type": "object"}) is None
    assert make_strict(PLAIN) is not None
    assert get_output_type(dict[str, int]).strict_schema == get_output_type(dict[str, int]).schema
    assert get_output_type(Point).strict_schema["required"] == ["x", "y"]


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
    assert get_output_type(Person).parse(msgspec.json.encode(person).decode()) == person
