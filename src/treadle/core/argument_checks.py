"""Checks of what a program gives: a wrong value is a ConfigError that names the argument, what was
given and what is expected.

    check("max_turns", given, whole_number(0))
    ConfigError: max_turns is -1; expected a whole number of 0 or more

An Expected is a test and its words; the functions below make the usual ones. Uses errors.py only.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.core.errors import ConfigError
from treadle.lib.text.text import suggest


class Expected:
    """`fits` says whether a value is what `words` describe. With `element`, the value is a list,
    and each of its elements is checked."""

    def __init__(
        self, fits: Callable[[Any], bool], words: str, element: Expected | None = None
    ) -> None:
        self.fits = fits
        self.words = words
        self.element = element


def check(name: str, value: object, expected: Expected) -> None:
    """ConfigError if the value does not fit."""
    if not expected.fits(value):
        raise ConfigError(f"{name} is {value!r:.80}; expected {expected.words}")
    element = expected.element
    if element is not None and value and isinstance(value, Sequence):
        for index, one in enumerate(value):
            if element.element is not None or not element.fits(one):
                check(f"{name}[{index}]", one, element)


def check_all(values: Mapping[str, object], table: Mapping[str, Expected]) -> None:
    """Check each value that the table has."""
    for name, expected in table.items():
        check(name, values[name], expected)


def check_fields(value: object, table: Mapping[str, Expected]) -> None:
    """Check the attributes of an object when it is made: `ModelOptions(temperature="hot")`."""
    for name, expected in table.items():
        field = getattr(value, name)
        if expected.element is not None or not expected.fits(field):
            check(f"{type(value).__name__}.{name}", field, expected)


class SuggestingMeta(type(msgspec.Struct)):  # type: ignore[misc]
    """Of values that programs make: `ModelOptions(topp=1)` is a TypeError with the name that was
    probably meant. A class may have `foreign_names`: names elsewhere to its own."""

    if not TYPE_CHECKING:

        def __call__(cls, *values: object, **fields: object) -> object:
            if not fields.keys() <= set(cls.__struct_fields__):
                unknown = next(one for one in fields if one not in cls.__struct_fields__)
                foreign: Mapping[str, str] = getattr(cls, "foreign_names", {})
                meant = foreign.get(unknown) or suggest(unknown, cls.__struct_fields__)
                hint = f"did you mean {meant}?" if meant else ", ".join(cls.__struct_fields__)
                raise TypeError(f"{cls.__name__} has no field {unknown!r}; {hint}")
            return super().__call__(*values, **fields)


# --- what can be expected ------------------------------------------------------------------


def instance_of(kind: type | tuple[type, ...], words: str) -> Expected:
    return Expected(lambda value: isinstance(value, kind), words)


def optional(expected: Expected) -> Expected:
    def fits(value: object) -> bool:
        return value is None or expected.fits(value)

    return Expected(fits, f"{expected.words}, or None", expected.element)


def list_of(element: Expected, words: str) -> Expected:
    return Expected(is_list, f"a list of {words}", element)


def one_of(*values: str) -> Expected:
    words = f"{', '.join(values[:-1])} or {values[-1]}"
    return Expected(lambda value: isinstance(value, str) and value in values, words)


def whole_number(least: int) -> Expected:
    def fits(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return Expected(fits, f"a whole number of {least} or more")


def number(words: str, fits_range: Callable[[float], bool]) -> Expected:
    """`fits_range` is False for NaN, as every comparison is."""

    def fits(value: object) -> bool:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and fits_range(value)  # type: ignore[arg-type]

    return Expected(fits, words)


def has_methods(*names: str, base: str = "", must_be_plain: bool = False) -> Expected:
    """An object with these methods, not its class. `must_be_plain`: they are not `async`.
    `base` is the class that has defaults for them."""

    def fits(value: object) -> bool:
        if isinstance(value, type) or not all(hasattr(value, name) for name in names):
            return False
        methods = [getattr(value, name) for name in names] if must_be_plain else ()
        return not any(map(inspect.iscoroutinefunction, methods))

    plural = "s" if len(names) > 1 else ""
    words = f"an object with the method{plural} {' and '.join(f'{name}()' for name in names)}"
    if must_be_plain:
        words += ", without async"
    return Expected(fits, f"{words} (see {base})" if base else words)


def function_of(*parameters: str) -> Expected:
    """A function that can be called with as many values: `function_of("answer", "context")`."""

    def fits(value: object) -> bool:
        if not callable(value):
            return False
        try:
            inspect.signature(value).bind(*parameters)
        except ValueError:
            return True  # without a signature, as some functions in C
        except TypeError:
            return False
        return True

    return Expected(fits, f"a function of ({', '.join(parameters)})")


def filled_text(words: str) -> Expected:
    return Expected(lambda value: isinstance(value, str) and value.strip() != "", words)


def is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


TEXT = instance_of(str, "a text")
FLAG = instance_of(bool, "True or False")
FUNCTION = Expected(callable, "a function")
DICT = instance_of(dict, "a dict")
_FILLED = filled_text("a text")
PATH = Expected(lambda value: isinstance(value, os.PathLike) or _FILLED.fits(value), "a path")
