"""The type variables of the public API: what a run depends on, and what it answers.

`Agent[Shop, Order]` gives `Shop` to its tools as `context.deps` and answers with an `Order`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import typing_extensions

    DepsT = typing_extensions.TypeVar("DepsT", default=None)
    OutputT = typing_extensions.TypeVar("OutputT", default=str)
else:
    DepsT = TypeVar("DepsT")
    OutputT = TypeVar("OutputT")
