"""Repairs calls that have one meaning but another spelling: `Bash`, `path`, JSON in a code fence.

A call is repaired before it enters the transcript and before anything is decided about it: log,
policy, user and tool see the same call. What was repaired, and whether a value was guessed, is kept
with the call; its result tells the model. A call that may have been cut off, or that has two
meanings, stays as it is and is refused. Used by model_call.py; the tools repair their own arguments
(`RepairingTool`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from treadle.core.arguments.fit_names import (
    NameTable,
    Report,
    find_folded,
    fit_arguments,
    fold_name,
)
from treadle.core.contracts.tool import RepairedArguments, RepairingTool, Tool
from treadle.core.errors import error_text
from treadle.core.loop.calls.toolbox import Toolbox
from treadle.core.transcript.content import Arguments, AssistantContent, ToolCall
from treadle.core.transcript.integrity import with_unique_id
from treadle.core.transcript.items import AssistantItem
from treadle.lib.contained import call_contained
from treadle.lib.json.schema import JSONSchema, allows_type
from treadle.lib.logger import logger
from treadle.lib.text.lazy_regex import compile_lazily

# What models put around a name: `functions.read`, `default_api.read`, `read:0`, `read<|channel|>x`.
_NAME_PARTS = compile_lazily(
    r"(?:functions|function|default_api|tools|tool|treadle)[.:/](?P<prefixed>.+)"
    r"|(?P<counted>.+?):\d+|(?P<marked>[^<]+)<\|.*",
    re.DOTALL,
)
MAX_NOTES = 4
_PARALLEL = ("multi_tool_use.parallel", "multi_tool_use_parallel")


class CallRepairer:
    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    def repair(self, call: ToolCall) -> tuple[ToolCall, ...]:
        """The call under the name and with the arguments that it means; as several, with ids of
        their own, if it wraps several."""
        return tuple([one for part in _split_parallel(call) for one in self._repair_one(part)])

    def _repair_one(self, call: ToolCall) -> tuple[ToolCall, ...]:
        try:
            return call_contained(self._repair, call)
        except Exception as error:  # noqa: BLE001 - the code of a tool may raise anything
            logger.warning("a call of %s could not be repaired: %s", call.name, error_text(error))
            return (call,)

    def _repair(self, call: ToolCall) -> tuple[ToolCall, ...]:
        notes: list[str] = []
        is_guessed = False
        tool = self._toolbox.find(call.name) or self._find_meant(call.name)
        if tool is None:
            return (call,)
        if tool.spec.name != call.name:
            notes.append(f"the tool is named `{tool.spec.name}`")
        arguments = call.parsed
        if isinstance(arguments, str):
            read = _read_arguments(call.raw, tool)
            if read is None:
                return (_replace(call, tool, call.raw, "; ".join(notes)) if notes else call,)
            arguments, is_guessed = read.arguments, read.is_guessed
            notes += read.notes
        repaired = _repair_arguments(tool, arguments)
        notes += repaired.notes
        is_guessed = is_guessed or repaired.is_guessed
        meant = self._toolbox.find(repaired.tool) if repaired.tool else None
        if meant is not None:
            note = f"`{meant.spec.name}` is a tool of its own"
            return (_replace(call, meant, _encode(repaired.tool_arguments), note, is_guessed),)
        if not notes:
            return (call,)
        shown = list(dict.fromkeys(notes))
        note = "; ".join(shown[:MAX_NOTES])
        meant_calls = [
            _replace(call, tool, _encode(one), note, is_guessed)
            for one in (repaired.arguments, *repaired.more)
        ]
        if len(meant_calls) == 1:
            return (meant_calls[0],)
        return tuple([_number(one, number) for number, one in enumerate(meant_calls, 1)])

    def _find_meant(self, name: str) -> Tool | None:
        """The only tool that has this name in another spelling, or as another name."""
        plain, specs = _strip_name(name), self._toolbox.all_specs
        same = find_folded(plain, [spec.name for spec in specs])
        if same is not None:
            return self._toolbox.find(same)
        # Only tools that this agent has: a name of another program that means no tool is refused.
        aliased = [spec.name for spec in specs if fold_name(plain) in map(fold_name, spec.aliases)]
        return self._toolbox.find(aliased[0]) if len(aliased) == 1 else None


def _number(call: ToolCall, number: int) -> ToolCall:
    """One of the calls that a call wraps."""
    return msgspec.structs.replace(call, id=f"{call.id}-{number}")


def _split_parallel(call: ToolCall) -> tuple[ToolCall, ...]:
    """The calls that a call of OpenAI's `multi_tool_use.parallel` wraps; else the call itself."""
    if call.name not in _PARALLEL:
        return (call,)
    parts: list[ToolCall] = []
    match call.arguments:
        case {"tool_uses": [_, *_] as uses, **rest} if not rest:
            for number, use in enumerate(uses, 1):
                match use:
                    case {
                        "recipient_name": str(name),
                        "parameters": dict() | str() as arguments,
                        **more,
                    }:
                        if more:
                            return (call,)
                        raw = arguments if isinstance(arguments, str) else _encode(arguments)
                        note = f"it was in `{call.name}`"
                        parts.append(_number(ToolCall(call.id, name, raw, note, call.by), number))
                    case _:
                        return (call,)
    return tuple(parts) or (call,)


def _strip_name(name: str) -> str:
    plain = name.strip()
    while (parts := _NAME_PARTS.fullmatch(plain)) is not None:
        plain = next(filter(None, parts.groups())).strip()
    return plain


def _read_arguments(raw: str, tool: Tool) -> RepairedArguments | None:
    """Arguments that are not strictly JSON."""
    argument = tool.spec.text_argument
    if argument and raw.lstrip()[:1] not in ("{", "[", '"', "`"):
        return RepairedArguments({argument: raw}, (f"the text is `{argument}`",))
    from treadle.core.arguments.loose_json import read_loosely

    found = read_loosely(raw, _find_text_argument(tool.spec.schema))
    if found is None:
        return None
    return RepairedArguments(found.arguments, (found.problem,), is_guessed=found.is_guessed)


def _find_text_argument(schema: JSONSchema) -> str:
    """The only required argument, if it is a text."""
    required = schema.get("required", ())
    if len(required) != 1:
        return ""
    part = schema.get("properties", {}).get(required[0], {})
    return required[0] if part.get("type") == "string" and allows_type("", part) else ""


def _repair_arguments(tool: Tool, arguments: Arguments) -> RepairedArguments:
    if hasattr(tool, "repair") and isinstance(tool, RepairingTool):
        return tool.repair(arguments)
    schema = tool.spec.schema
    properties = schema.get("properties")
    if not isinstance(properties, dict) or arguments.keys() <= properties.keys():
        return RepairedArguments(arguments)
    report = Report()
    fitted = fit_arguments(arguments, schema, NameTable(), report)
    return RepairedArguments(fitted, tuple(report.notes), is_guessed=report.is_guessed)


def _replace(call: ToolCall, tool: Tool, raw: str, note: str, is_guessed: bool = False) -> ToolCall:
    note = "; ".join(filter(None, (call.repaired, note)))
    return msgspec.structs.replace(
        call, name=tool.spec.name, raw=raw, repaired=note, is_guessed=is_guessed
    )


def _encode(arguments: Arguments) -> str:
    try:
        return msgspec.json.encode(arguments).decode()
    except UnicodeEncodeError:  # half of a surrogate pair; the tool refuses it
        from json import dumps

        return dumps(arguments)


class AnnouncedCalls:
    """The calls announced so far, each with what it is in the transcript: with a unique id,
    repaired, and as several if it wraps several."""

    def __init__(
        self,
        is_in_session: Callable[[str], bool],
        repairer: CallRepairer | None,
    ) -> None:
        self._is_in_session = is_in_session
        self._repairer = repairer
        self._ids: set[str] = set()
        self._added: list[tuple[ToolCall, list[ToolCall]]] = []
        self._are_changed = False  # whether one is not as it was announced

    def add(self, call: ToolCall) -> list[ToolCall]:
        finals: list[ToolCall] = []
        for one in (call,) if self._repairer is None else self._repairer.repair(call):
            final = with_unique_id(one, self._is_taken)
            self._ids.add(final.id)
            finals.append(final)
        self._added.append((call, finals))
        self._are_changed = self._are_changed or finals != [call]
        return finals

    def complete(self, reply: AssistantItem) -> AssistantItem:
        """The reply with the calls as they were announced; those that were not are added now."""
        if not self._are_changed and reply.calls == tuple([call for call, _ in self._added]):
            return reply
        left = list(self._added)
        content: list[AssistantContent] = []
        for part in reply.content:
            if type(part) is ToolCall:
                announced = next((pair for pair in left if pair[0] == part), None)
                if announced is not None:
                    left.remove(announced)
                content += announced[1] if announced is not None else self.add(part)
            else:
                content.append(part)
        if content == list(reply.content):
            return reply
        return msgspec.structs.replace(reply, content=tuple(content))

    def _is_taken(self, call_id: str) -> bool:
        return call_id in self._ids or self._is_in_session(call_id)
