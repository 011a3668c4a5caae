"""The form that every built-in tool has: typed arguments, a description in Markdown beside it.

A tool is a class with a Struct for its arguments and `run`. This page turns that into the Tool
contract: schema, checks, synonyms that other agents' models use, errors in words. It knows no
single tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

import msgspec

from treadle.core import terminal
from treadle.core.contracts.tool import (
    DEFAULT_RESULT_CHARS,
    Probe,
    Resources,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.errors import ToolError, WorkspaceError
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import EffectClass
from treadle.tools.builtin.desk import Desk, Seat
from treadle.tools.function import summary_line

Given = TypeVar("Given", bound=msgspec.Struct)

_KEPT = "\n\t\u200c\u200d\ufe0f"  # several lines, and what emoji are joined with


class BuiltinTool(Generic[Given]):
    """A tool of ours.

    name, form      what it is called; the Struct of its arguments
    synonyms        other names for arguments. The policy must know every one that names a path,
                    an address or a command: it judges what was given, under the name it was given
    """

    name: ClassVar[str]
    form: ClassVar[type[msgspec.Struct]]
    effect: ClassVar[EffectClass] = "pure"
    concurrent: ClassVar[bool] = True
    synonyms: ClassVar[Mapping[str, str]] = {}
    timeout: ClassVar[float | None] = None
    detachable: ClassVar[bool] = False
    max_result_chars: ClassVar[int] = DEFAULT_RESULT_CHARS

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._spec = _spec(type(self))

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    # --- for the tools to fill in --------------------------------------------------------

    async def run(self, given: Given, seat: Seat) -> ToolOutput:
        raise NotImplementedError

    def objection(self, given: Given) -> str | None:
        """What is wrong with well-typed arguments."""
        return None

    def reads(self, given: Given) -> tuple[str, ...]:
        """Paths as given."""
        return ()

    def writes(self, given: Given) -> tuple[str, ...]:
        return ()

    # --- the contract --------------------------------------------------------------------

    def check(self, arguments: Arguments) -> str | None:
        self.desk.note(arguments)
        try:
            return self.objection(self.given(arguments))
        except ToolError as error:
            return str(error)

    def summary(self, arguments: Arguments) -> str:
        return visible(summary_line(self.name, arguments))

    def resources(self, arguments: Arguments) -> Resources:
        given = self.given(arguments)
        keys = self.desk.keys
        return Resources(
            keys(arguments, self.reads(given)),
            keys(arguments, self.writes(given)),
        )

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        given = self.given(arguments)
        try:
            return await self.run(given, self.desk.enter(arguments, context))
        except WorkspaceError as error:
            raise ToolError(str(error)) from error

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        return {}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> Probe:
        return Probe("unknown", f"{self.name} cannot be checked afterwards")

    def given(self, arguments: Arguments) -> Given:
        """The arguments in their form; ToolError in words for the model."""
        named: Arguments = {}
        for key, value in arguments.items():
            name = self.synonyms.get(key, key)
            if name in named:
                raise ToolError(f"invalid arguments for {self.name}: `{name}` is given twice")
            named[name] = value
        try:
            # Not strict: "true" and "5" are what small models write for true and 5.
            return cast(Given, msgspec.convert(named, self.form, strict=False))
        except (msgspec.ValidationError, ValueError) as error:
            raise ToolError(f"invalid arguments for {self.name}: {error}") from error


def visible(text: str) -> str:
    """Text for a person's screen: controls become pictures."""
    return terminal.visible(text, keep=_KEPT)


def described(name: str) -> str:
    """The prose that stands beside the code."""
    return (Path(__file__).parent / f"{name}.md").read_text(encoding="utf-8").strip()


_specs: dict[str, ToolSpec] = {}


def _spec(kind: type[BuiltinTool[Any]]) -> ToolSpec:
    """Made once for all: it is the same whatever the tool works on."""
    if kind.name not in _specs:
        _specs[kind.name] = _made(kind)
    return _specs[kind.name]


def _made(kind: type[BuiltinTool[Any]]) -> ToolSpec:
    return ToolSpec(
        name=kind.name,
        description=described(kind.name),
        schema=_schema(kind.form),
        effect=kind.effect,
        concurrent=kind.concurrent,
        timeout=kind.timeout,
        detachable=kind.detachable,
        max_result_chars=kind.max_result_chars,
    )


def _schema(form: type[msgspec.Struct]) -> dict[str, Any]:
    (whole,), parts = msgspec.json.schema_components([form], ref_template="{name}")
    schema: dict[str, Any] = _inlined(parts.get(whole.get("$ref", ""), whole), parts)
    schema.setdefault("required", [])
    schema["additionalProperties"] = False
    return schema


def _inlined(part: Any, parts: Mapping[str, Any]) -> Any:
    """Without references, titles, and defaults that say nothing: fewer tokens, same meaning."""
    if isinstance(part, list):
        return [_inlined(one, parts) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined({**parts[part["$ref"]], **_without(part, "$ref")}, parts)
    return {
        key: {name: _inlined(one, parts) for name, one in value.items()}
        if key == "properties"
        else _inlined(value, parts)
        for key, value in part.items()
        if key != "title" and not (key == "default" and value in ("", 0, False, [], None))
    }


def _without(part: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != key}
