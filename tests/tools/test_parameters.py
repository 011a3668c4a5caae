"""Parameters of a tool: what each type becomes, and what the model reads when one does not fit."""

from __future__ import annotations

import dataclasses
import datetime
import subprocess
import sys
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from pydantic import Field

from treadle import tool
from treadle.core.errors import ConfigError
from treadle.tools.function import FunctionTool


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Seat(pydantic.BaseModel):
    row: int = Field(ge=1)
    name: str = "any"

    @pydantic.field_validator("name")
    @classmethod
    def check_name(cls, name: str) -> str:
        if name == "none":
            raise ValueError("a seat has a name")
        return name


@dataclasses.dataclass
class Booking:
    seats: list[Seat]
    note: Annotated[str, Field(max_length=5)] = ""

    def __post_init__(self) -> None:
        if len(self.seats) > 2:
            raise ValueError("two seats at most")


@dataclasses.dataclass
class Price:
    euros: Decimal


class Address(TypedDict, total=False):
    street: str
    number: int


class Span(NamedTuple):
    first: int
    last: int = 9


class Circle(msgspec.Struct, tag=True):
    radius: Annotated[float, msgspec.Meta(gt=0)]


class Square(msgspec.Struct, tag=True):
    side: float


def call(function: FunctionTool[..., Any], **arguments: Any) -> Any:
    """What the function gets; the text for the model if the arguments do not fit."""
    problem = function.check(arguments)
    if problem is not None:
        return problem.removeprefix(f"invalid arguments for {function.spec.name}: ")
    positional, named = function._parameters.bind(arguments, None)  # type: ignore[arg-type]  # no context
    return function(*positional, **named)


def take(annotation: Any) -> FunctionTool[..., Any]:
    def give(value):
        return value

    give.__annotations__["value"] = annotation
    return tool(give)


@pytest.mark.parametrize(
    ("annotation", "given", "value"),
    [
        (Path, "a/b", Path("a/b")),
        (Path | None, "a/b", Path("a/b")),
        (Path | None, None, None),
        (Decimal, "1.50", Decimal("1.50")),
        (Decimal, 1.5, Decimal("1.5")),
        (datetime.datetime, "2026-01-31T10:00:00", datetime.datetime(2026, 1, 31, 10)),  # noqa: DTZ001
        (datetime.datetime, "2026-01-31", datetime.datetime(2026, 1, 31)),  # noqa: DTZ001
        (datetime.date, "2026-01-31", datetime.date(2026, 1, 31)),
        (datetime.timedelta, "PT90S", datetime.timedelta(seconds=90)),
        (UUID, "12345678123456781234567812345678", UUID(int=0x12345678123456781234567812345678)),
        (Colour, "blue", Colour.BLUE),
        (Literal["b", "a"], "a", "a"),
        (bytes, "aGk=", b"hi"),
        (Address, {"street": "A"}, {"street": "A"}),
        (Span, {"first": 1}, Span(1, 9)),
        (Seat, {"row": 1}, Seat(row=1)),
        (Seat | None, None, None),
        (Seat | None, {"row": "2"}, Seat(row=2)),
        (list[Seat], [{"row": 1}, {"row": 2}], [Seat(row=1), Seat(row=2)]),
        (dict[str, Seat], {"a": {"row": 1}}, {"a": Seat(row=1)}),
        (Booking, {"seats": [{"row": 1}]}, Booking([Seat(row=1)])),
        (Circle | Square, {"type": "Square", "side": 2}, Square(2)),
        (Circle | Seat | str, {"row": 3}, Seat(row=3)),
        (Circle | Seat | str, "none of these", "none of these"),
        (Booking | Address, {"street": "A"}, {"street": "A"}),
        (int | str, "5", "5"),
        (int, "5", 5),
        (bool, "true", True),
        (float, 3, 3.0),
        (list[int], "[1, 2]", [1, 2]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[int], [1, 1, 2], {1, 2}),
        (dict[int, str], {"1": "a"}, {1: "a"}),
    ],
)
def test_arguments_arrive_as_the_annotated_type(annotation, given, value):
    got = call(take(annotation), value=given)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("annotation", "given", "problem"),
    [
        (Annotated[int, Field(ge=1)], -3, "value: expected a number of at least 1, got -3"),
        (Annotated[int, msgspec.Meta(ge=1)], -3, "value: expected a number of at least 1, got -3"),
        (
            Annotated[float, Field(gt=0, lt=1)],
            1,
            "expected a number greater than 0 and less than 1",
        ),
        (Annotated[int, Field(multiple_of=5)], 7, "a number that is a multiple of 5, got 7"),
        (Annotated[str, Field(min_length=2)], "a", 'text of at least 2 characters, got "a"'),
        (Annotated[str, msgspec.Meta(pattern="^x")], "y", 'text that matches ^x, got "y"'),
        (Annotated[list[int], Field(max_length=1)], [1, 2], "a list of at most 1 item, got [1, 2]"),
        (Annotated[int | None, Field(le=3)], 4, "a number of at most 3, got 4"),
        (Annotated[Decimal, Field(ge=0)], "-1", 'a number of at least 0, got "-1"'),
        (pydantic.PositiveInt, 0, "a number greater than 0, got 0"),
        (int, "five", 'value: expected an integer, got "five"'),
        (int, 1.5, "value: expected an integer, got 1.5"),
        (int, None, "value: expected an integer, got null"),
        (Decimal, "much", 'value: expected a decimal number such as 1.50, got "much"'),
        (Decimal, "Infinity", 'value: expected a decimal number such as 1.50, got "Infinity"'),
        (Annotated[Decimal, Field(le=9)], "NaN", 'a decimal number such as 1.50, got "NaN"'),
        (Price, {"euros": "NaN"}, 'value.euros: expected a decimal number such as 1.50, got "NaN"'),
        (datetime.date, "soon", 'value: expected a date such as 2026-01-31, got "soon"'),
        (UUID, "x", 'value: expected a UUID, got "x"'),
        (Colour, "green", 'value: expected one of "red", "blue", got "green"'),
        (Literal["b", "a"], "c", 'value: expected one of "b", "a", got "c"'),
        (int | list[int], "x", 'value: expected an integer or a list, got "x"'),
        (list[Seat], [{"row": 1}, {"row": 0}], "value[1].row: expected a number of at least 1"),
        (dict[str, Seat], {"a": {}}, "value.a.row: missing, expected an integer of at least 1"),
        (Seat, {"row": 1, "name": "none"}, "value.name: a seat has a name"),
        (Booking, {"seats": [{"row": -1}]}, "value.seats[0].row: expected a number of at least 1"),
        (Booking, {"seats": [], "note": "too long"}, "value.note: expected text of at most 5"),
        (Booking, {"seats": [{"row": 1}] * 3}, "value: two seats at most"),
        (Circle | Square, {"type": "Circle", "radius": 0}, "value.radius: expected a number great"),
        (Circle | Square, {"type": "Line"}, 'value.type: expected "Circle", got "Line"'),
        (Address, {"number": "x"}, 'value.number: expected an integer, got "x"'),
    ],
)
def test_what_does_not_fit_is_named_in_plain_words(annotation, given, problem):
    got = call(take(annotation), value=given)
    assert problem in got
    assert "\n" not in got


def test_missing_and_unknown_parameters_are_named():
    @tool
    def book(seats: int, town: str = "Oslo") -> str:
        return f"{seats} {town}"

    assert call(book) == "seats: missing, expected an integer"
    assert call(book, seats=1, twon="Rome") == "twon: not known, expected only seats, town"
    assert call(book, seats=1) == "1 Oslo"


def test_descriptions_and_limits_are_in_the_schema():
    @tool
    def book(
        seats: Annotated[int, Field(ge=1, le=9, description="How many", examples=[2])],
        town: Annotated[str, msgspec.Meta(min_length=2, description="Where")],
        row: Annotated[int | None, "Which row"] = None,
        level: int = Field(3, lt=5, description="Which level"),
        colour: Literal["red", "blue", "amber"] = "red",
        seat: Annotated[Seat | None, "Which seat"] = None,
        note: str = "",
    ) -> str:
        """Book.

        Args:
            town: this one yields to the annotation
            note: For the staff
        """
        return f"{seats} {level}"

    properties = book.spec.schema["properties"]
    assert properties["seats"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "description": "How many",
        "examples": [2],
    }
    assert properties["town"] == {"type": "string", "minLength": 2, "description": "Where"}
    assert properties["row"]["description"] == "Which row"
    assert properties["level"] == {
        "type": "integer",
        "exclusiveMaximum": 5,
        "description": "Which level",
        "default": 3,
    }
    assert properties["colour"]["enum"] == ["red", "blue", "amber"], "in the order of the program"
    assert properties["seat"]["description"] == "Which seat"
    assert properties["note"]["description"] == "For the staff"
    assert book.spec.schema["required"] == ["seats", "town"]
    assert call(book, seats=1, town="Oslo") == "1 3"


def test_types_that_contain_themselves_have_a_schema():
    class Node(pydantic.BaseModel):
        children: list[Node] = []

    got = call(take(list[Node]), value=[{"children": [{"children": []}]}])
    assert got == [Node(children=[Node()])]
    problem = call(take(list[Node]), value=[{"children": [{"children": 4}]}])
    assert problem == "value[0].children[0].children: expected a list, got 4"


def test_a_type_without_a_json_form_is_refused_where_it_is_decorated():
    class Plain:
        pass

    problem = "tool 'give': value has no schema: Plain has no JSON form; use a dataclass, a Typed"
    with pytest.raises(ConfigError, match=problem):
        take(list[Plain])


def test_pydantic_is_loaded_only_for_parameters_that_use_it():
    program = """
import sys
from dataclasses import dataclass
from typing import Annotated
import msgspec
from treadle import tool

@dataclass
class Point:
    x: Annotated[int, msgspec.Meta(ge=1)]

@tool
def move(point: Point) -> str:
    return "moved"

assert move.check({"point": {"x": 0}})
assert "pydantic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_context_without_a_type_is_not_given_to_the_model():
    with pytest.raises(ConfigError, match="tool 'read': ctx has no type; write ctx: ToolContext"):

        @tool
        def read(ctx, path: str) -> str:
            return path

    with pytest.raises(ConfigError, match="tool 'look': context has no type"):

        class Files:
            @tool
            def look(self, context, path: str) -> str:
                return path

    @tool
    def search(context: str, ctx=None) -> str:
        """Search."""
        return context

    assert list(search.spec.schema["properties"]) == ["context", "ctx"]
