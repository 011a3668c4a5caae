"""Code of others that is called: whatever it raises is an `Exception`, which its caller handles.

A SystemExit, a GeneratorExit or a CancelledError of its own would pass `except Exception`, and end
a task, the event loop or the program. Only the KeyboardInterrupt of the user passes. To await code
of others is `await_contained` in tasks.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def call_contained(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What the function returns. No cancellation of ours arrives in it, because it awaits
    nothing."""
    try:
        return function(*args, **kwargs)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as raised:
        raise as_exception(raised) from raised


def as_exception(raised: BaseException) -> Exception:
    """The same if it is one that passes through tasks and coroutines unchanged, else a
    RuntimeError that names it."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    return RuntimeError(f"it raised {type(raised).__name__}: {raised}")
