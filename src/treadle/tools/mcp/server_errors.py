"""The errors of a server and of the SDK as messages for the user and the model."""

from __future__ import annotations


def unwrap_error(error: BaseException) -> BaseException:
    """The error, or the first error in an exception group: the SDK's task groups raise them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe_error(error: BaseException) -> str:
    """The message of an error, or of the first error in an exception group."""
    error = unwrap_error(error)
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ValueError) and hasattr(error, "errors"):  # of the SDK's values
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return f"it sent an invalid message ({where}: {first['msg']})"
    return str(error) or type(error).__name__
