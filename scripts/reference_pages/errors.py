"""The page of the errors: the classes of core/errors.py, each with its exit code and a remedy."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from scripts.reference_pages.exit_codes import find_exit_code
from scripts.reference_pages.markdown import first_sentence, make_entry, make_page
from treadle.core import errors
from treadle.core.errors import TreadleError

INTRODUCTION = """\
Every error that Treadle raises on purpose is a `treadle.TreadleError` and is in `treadle.errors`;
the common ones are in `treadle`, too. The message says what happened, to what, and what to do
next. An error that leaves a run carries it: `error.transcript`, `error.usage`, `error.cost` and
`error.session_id`.

A [`ModelError`](#modelerror) says that a provider did not answer: `provider` and `status` say who
answered what. Transient ones are retried before they are raised
([models.md](../models.md#timeouts-and-retries)).

A `TypeError` is raised for an argument that does not exist, with the name that was probably meant;
a `ValueError` by `Transcript.from_json` for what is no transcript. [API](api/treadle.errors.md)
has the attributes."""
# What to do about each error.
REMEDIES = {
    "TreadleError": "Read the message; catch it to catch all of them.",
    "ModelError": "Catch it for any failure of a provider.",
    "RateLimited": "Wait `retry_after` seconds, or add a fallback model.",
    "Overloaded": "Try later, or add a fallback model.",
    "Unreachable": "Look at the address, the proxy and the network.",
    "StreamBroken": "Run again: `session.run()` without a prompt continues.",
    "ReplyTimedOut": (
        "Run again, or allow more time: `first_content_timeout`, `idle_timeout`, `total_timeout`."
    ),
    "BadRequest": "Read the provider's reason in the message; the same request is refused again.",
    "ContextTooLong": "Use compaction, or a shorter history.",
    "AccessDenied": "Give another key.",
    "QuotaExhausted": "Add credit to the account.",
    "UnknownModel": "Choose a name that `treadle models` lists.",
    "CacheUnsupported": "Choose another model, or `CacheRequest(required=False)`.",
    "EmptyReply": "Run again.",
    "OutputMismatch": "Look at `problem` and `answer`; raise `output_retries`.",
    "OutputMissing": "Look at `reason`: a limit or an interruption stopped the run.",
    "LoopError": "Read the message: it says how to use the agent, session or driver.",
    "NothingToAnswer": (
        "Give a prompt; `session.can_continue` says whether there is a turn to continue."
    ),
    "CallNotAdmitted": "Raise the budget.",
    "ApprovalPending": "Approve or deny all calls of the request first.",
    "DriverBusy": "Await the other run, or use `session.steer`.",
    "LawBroken": "Mend the mutator that the message names.",
    "InputBlocked": "Look at `reason`: it is the hook's.",
    "ToolError": (
        "None: raise it in a tool of yours, and the model reads the message. It does not leave a "
        "run."
    ),
    "AuthRequired": "Log in outside of the turn ([mcp.md](../mcp.md)).",
    "ToolsUnavailable": (
        "Read the server's output in the message, or use `McpServer(required=False)`."
    ),
    "StoreError": "Read the reason of the store in the message.",
    "StoreFull": "Free some space; the run stopped before the next effect.",
    "StoreRefused": "Change the content: trying again does not help.",
    "SessionBusy": "Wait for the other process, or end it.",
    "SessionNotFound": "Look at `treadle sessions`, or `agent.sessions.list()`.",
    "SessionInOtherFolder": "Open it in its folder, or fork it.",
    "SessionTooNew": "Use the version that wrote it.",
    "WorkspaceError": "Decide by `kind`.",
    "ConfigError": "Change what the message names; it says what is expected.",
    "MissingExtra": "Install the extra that the message names.",
}


def write_page() -> str:
    entries = (describe(kind, depth) for kind, depth in walk(TreadleError))
    return make_page("Errors", INTRODUCTION, *entries)


def walk(kind: type[TreadleError], depth: int = 0) -> Iterator[tuple[type[TreadleError], int]]:
    """A class and those of core/errors.py below it, in the order of the source."""
    yield kind, depth
    for one in vars(errors).values():
        if inspect.isclass(one) and issubclass(one, TreadleError) and one.__base__ is kind:
            yield from walk(one, depth + 1)


def describe(kind: type[TreadleError], depth: int) -> str:
    lines = [f"what to do: {REMEDIES[kind.__name__]}"]
    if kind is not errors.ToolError and not issubclass(kind, errors.ToolError):
        lines.append(f"exit code: {find_exit_code(kind)}")
    if depth and kind.__base__ not in (TreadleError, None):
        base = kind.__base__.__name__
        lines.append(f"a kind of [`{base}`](#{base.lower()})")
    return make_entry(kind.__name__, first_sentence(kind.__doc__ or ""), lines)
