"""The page of the events: the classes of core/events.py, as objects and as lines of stream-json."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from scripts.reference_pages.markdown import first_sentence, list_codes, make_entry, make_page
from treadle.core import events
from treadle.core.events import Event

INTRODUCTION = """\
A program gets events as objects of `treadle.events`: a reader of `agent.stream(…)`, and an
observer. `treadle -p --output-format stream-json` prints each as a line, with its name in the
field `type` ([guide](../events.md): their order, the other lines, items). New events and fields
may appear at any time: ignore those that you do not know.

All have `session_id`, `turn_id` and `seq`, which only grows within a session. An event of a child
agent is the `child` of a [`ChildEvent`](#childevent), with the child's own `session_id`;
`treadle.events.unwrap(event)` is the innermost one. Items, `ToolCall` and `Usage` are in
[`treadle.contracts`](api/treadle.contracts.md). A line has no field whose class leaves out its
usual value."""
# What an event without a docstring says.
TEXTS = {
    "MessageDropped": (
        "A queued message does not enter the transcript: the host withdrew it, or a hook refused "
        "it."
    ),
    "InputAccepted": "A message is now in the transcript.",
    "RequestStarted": "A model call starts.",
    "ThinkingDelta": "A piece of the model's thinking.",
    "ToolCallBegan": "A call of the reply begins; its arguments follow.",
    "ToolCallDelta": "A piece of the arguments of a call, as JSON text.",
    "ToolCallRequested": "A call is complete: once per call.",
    "ApprovalRequired": "A call needs an approval.",
    "ApprovalResolved": "A call was approved or denied.",
    "ToolStarted": "A tool starts to run.",
    "ToolProgress": "A piece of what a running tool prints.",
    "ToolFinished": "A call has ended; `result` is the beginning of what the model reads.",
    "ToolsChanged": "Tools appeared or disappeared.",
    "MutationStarted": "A mutator, such as compaction, starts to change what the model sees.",
    "MutationFinished": "The mutator has ended; `changed` says whether it changed anything.",
}


def write_page() -> str:
    return make_page("Events", INTRODUCTION, *map(describe, list_events()), describe_result())


def list_events() -> list[type[Event]]:
    kinds = [kind for kind in vars(events).values() if inspect.isclass(kind)]
    return [kind for kind in kinds if issubclass(kind, Event) and kind is not Event]


def describe(kind: type[Event]) -> str:
    name = kind.__struct_config__.tag
    lines = [f"type: `{name}`", *list_fields(kind, set(inspect.get_annotations(kind)))]
    text = read_text(kind)
    return make_entry(kind.__name__, text, lines)


def read_text(kind: type[Event]) -> str:
    own = kind.__dict__.get("__doc__")
    text = TEXTS.get(kind.__name__) or " ".join((own or "").split())
    if not text:
        raise ValueError(f"{kind.__name__} has neither a docstring nor a text in {__file__}")
    return text


def list_fields(kind: type[msgspec.Struct], names: set[str]) -> Iterator[str]:
    hints = get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        if field.name in names:
            also = f" (in a line: `{field.encode_name}`)" if field.encode_name != field.name else ""
            yield f"`{field.name}`{also}: {describe_type(hints[field.name])}"


def describe_type(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return list_codes(map(str, get_args(hint)), " · ")
    if isinstance(hint, type) and not get_args(hint):
        return f"`{hint.__name__}`"
    text = str(hint)
    for prefix in ("treadle.core.events.", "treadle.core.transcript.items.", "typing."):
        text = text.replace(prefix, "")
    return f"`{text}`"


def describe_result() -> str:
    kind = events.TurnResult
    lines = list(list_fields(kind, set(inspect.get_annotations(kind))))
    return make_entry("TurnResult", first_sentence(kind.__doc__ or ""), lines)
