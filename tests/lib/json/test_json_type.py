from __future__ import annotations

import dataclasses
import datetime
import enum
from typing import Annotated, Any, Generic, NotRequired, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.lib.json.json_type import JsonType
from treadle.lib.json.partial_json import read_partial_json
from treadle.lib.json.schema import Mismatch, find_mismatch

T = TypeVar("T")


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Box(Generic[T]):
    content: T
    others: list[T] = dataclasses.field(default_factory=list)


class Tree(msgspec.Struct, rename="camel"):
    node_name: str
    sub_trees: list[Tree] = []


class Parcel(TypedDict):
    box: Box[int]
    sent: NotRequired[datetime.date]


class Model(pydantic.BaseModel):
    colour: Colour
    tree: list[int] = []


texts = st.text(st.characters(exclude_categories=["Cs"]))
integers = st.integers(-(2**53), 2**53)
boxes = st.builds(Box[int], integers, st.lists(integers))
models = st.builds(Model, colour=st.sampled_from(Colour), tree=st.lists(integers))
trees: st.SearchStrategy[Tree] = st.deferred(
    lambda: st.builds(Tree, texts, st.lists(trees, max_size=1))
)
parcels = st.fixed_dictionaries({"box": boxes}, optional={"sent": st.dates()})
ids = st.dictionaries(st.uuids(), st.sampled_from(Colour))
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | integers | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Box[int], boxes),
        (Tree, trees),
        (Parcel, parcels),
        (Model, models),
        (Box[int] | Tree | Model, boxes | trees | models),
        (Annotated[list[Model | Tree], "many"], st.lists(models | trees)),
        (dict[UUID, Colour] | None, ids | st.none()),
    ],
)
@settings(max_examples=30)
@given(data=st.data())
def test_any_value_survives_the_way_through_json_and_fits_its_schema(kind, values, data):
    value = data.draw(values)
    encoded = msgspec.json.decode(msgspec.json.encode(value, enc_hook=dump))
    made = JsonType(kind)
    assert made.convert(encoded) == value
    assert find_mismatch(encoded, made.schema) is None


class Size(msgspec.Struct, tag=True):
    width: Annotated[int, msgspec.Meta(ge=0)]


@dataclasses.dataclass
class Shelf:
    sizes: list[Size] | None = None
    colour: Colour | str = Colour.RED
    names: dict[str, int | None] = dataclasses.field(default_factory=dict)
    at: datetime.datetime | float | None = None
    pairs: tuple[int, str] | None = None


@pytest.mark.parametrize(
    "kind",
    [
        Shelf,
        list[Shelf],
        dict[str, Size] | bool,
        int | float,
        float | None,
        set[int],
        Colour | None,
    ],
)
@settings(max_examples=200)
@given(data=st.data())
def test_what_msgspec_converts_is_what_our_own_code_makes_of_it(kind, data):
    by_hand = st.fixed_dictionaries(
        {},
        optional={
            "sizes": st.lists(st.builds(lambda width: {"type": "Size", "width": width}, integers)),
            "colour": st.integers(0, 3) | texts | st.just("1"),
            "names": st.dictionaries(texts, st.none() | integers | st.booleans()),
            "at": st.datetimes().map(str) | st.floats(0, 9) | texts,
            "pairs": st.tuples(integers, texts).map(list),
        },
    )
    value = data.draw(json_values | st.floats(0, 9) | by_hand | st.lists(by_hand))
    made = JsonType(kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treadle.lib.json.json_type.prefer_msgspec", lambda _, node: node)
        slow = JsonType(kind)
    assert outcome(made, value) == outcome(slow, value)


def outcome(kind: JsonType, value: Any) -> tuple[Any, ...]:
    try:
        made = kind.convert(value)
    except Mismatch as problem:
        return ("no", str(problem))
    return (type(made), made, repr(made))


def dump(value: Any) -> Any:
    return value.model_dump(mode="json")


def test_a_type_that_contains_itself_is_referred_to():
    schema = JsonType(Tree).schema
    assert schema["properties"]["subTrees"]["items"] == {"$ref": "#/$defs/Tree"}
    with pytest.raises(Mismatch, match=r"^subTrees\[0\]\.nodeName: missing, expected text$"):
        JsonType(Tree).convert({"nodeName": "a", "subTrees": [{}]})


def test_two_types_of_one_name_do_not_mix():
    other = dataclasses.make_dataclass("Model", [("size", int)])
    both = dataclasses.make_dataclass("Both", [("a", list[Model]), ("b", Model), ("c", other)])
    both_again = dataclasses.make_dataclass("Two", [("x", both), ("y", list[other])])  # type: ignore[valid-type]  # made here
    schema = JsonType(both_again).schema
    assert set(schema["$defs"]) == {"Model", "Model2"}


def test_an_object_of_a_union_is_what_fits_it_best():
    loose = dataclasses.make_dataclass("Loose", [("a", int, 0)])
    tight = dataclasses.make_dataclass("Tight", [("a", int, 0), ("b", int, 0)])
    assert JsonType(loose | tight).convert({"b": 1}) == tight(0, 1)
    assert JsonType(loose | tight).convert({"a": 1}) == loose(1)


def test_limits_inside_of_lists_and_dicts_are_checked():
    kind = JsonType(dict[str, list[Annotated[int, msgspec.Meta(ge=1)]]])
    with pytest.raises(Mismatch, match=r"^a\[1\]: expected a number of at least 1, got 0$"):
        kind.convert({"a": [1, 0]})


@settings(max_examples=60)
@given(json_values)
def test_every_beginning_of_a_json_text_can_be_read(value):
    text = msgspec.json.encode([value]).decode()
    for end in range(1, len(text)):
        assert isinstance(next(read_partial_json(text[:end])), list)
    assert next(read_partial_json(text)) == [value]
