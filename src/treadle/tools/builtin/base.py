"""The base class of every built-in tool: typed arguments, a description in Markdown beside it.

A tool is a class with a Struct for its arguments and `run`. This module turns that into the Tool
contract: schema, checks, argument aliases, errors for the model. It knows no single tool.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import msgspec

from treadle.core.arguments.fit_names import NameTable, Report, fit_arguments
from treadle.core.contracts.tool import (
    DEFAULT_RESULT_CHARS,
    Access,
    BaseTool,
    FileAccess,
    ProbeResult,
    RepairedArguments,
    ToolContext,
    ToolKind,
    ToolOutput,
    ToolSpec,
)
from treadle.core.errors import ToolError, WorkspaceError
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import EffectClass
from treadle.lib.json.schema import list_arguments
from treadle.lib.text import sanitize
from treadle.tools.builtin.session_memory import CallSite, ToolSessions
from treadle.tools.call_summary import summarize_call

ArgumentsT = TypeVar("ArgumentsT", bound=msgspec.Struct)

_KEPT_CHARACTERS = "\n\t\u200c\u200d\ufe0f"  # line ends, tabs, and the joiners of emoji


FILE_ALIASES: Mapping[str, str] = dict.fromkeys(
    ("path", "file", "filename", "file_name", "filepath", "absolute_path", "target_file",
     "notebook_path", "relative_path", "relative_workspace_path", "file_paths", "paths"),
    "file_path",
)  # fmt: skip
FOLDER_ALIASES: Mapping[str, str] = dict.fromkeys(
    ("directory", "dir", "dir_path", "folder", "root", "target_directory", "file_path", "cwd",
     "relative_workspace_path"),
    "path",
)  # fmt: skip


class BuiltinTool(BaseTool, Generic[ArgumentsT]):
    """A built-in tool.

    name, arguments_type   its name; the Struct of its arguments
    kind, aliases          what it does; other names that models use for the tool
    argument_aliases       other names that models use for arguments
    value_aliases          other words that they use for the values of an enum, by argument
    path_arguments         which arguments are paths
    is_recursive           it reads everything beneath the paths that it reads
    needs_policy           it changes files or runs commands: see `ToolSpec.needs_policy`
    """

    name: ClassVar[str]
    arguments_type: ClassVar[type[msgspec.Struct]]
    effect: ClassVar[EffectClass] = "pure"
    concurrent: ClassVar[bool] = True
    kind: ClassVar[ToolKind] = "other"
    aliases: ClassVar[tuple[str, ...]] = ()
    text_argument: ClassVar[str] = ""
    grammar: ClassVar[str] = ""
    argument_aliases: ClassVar[Mapping[str, str]] = {}
    value_aliases: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    path_arguments: ClassVar[tuple[str, ...]] = ("file_path", "path", "cwd")
    timeout: ClassVar[float | None] = None
    detachable: ClassVar[bool] = False
    is_recursive: ClassVar[bool] = False
    needs_policy: ClassVar[bool] = False
    max_result_chars: ClassVar[int] = DEFAULT_RESULT_CHARS

    def __init__(self, sessions: ToolSessions) -> None:
        self.sessions = sessions
        self._spec = _make_spec(type(self))  # type: ignore[arg-type]  # classes are hashable

    def unlist(self) -> Self:
        """This tool, which the model is from now on not told about."""
        self._spec = msgspec.structs.replace(self._spec, unlisted=True)
        return self

    # --- overridden by the tools ---------------------------------------------------------

    async def run(self, args: ArgumentsT, site: CallSite) -> ToolOutput:
        raise NotImplementedError

    def validate(self, args: ArgumentsT) -> str | None:
        """What is wrong with arguments of the right types; None if nothing is."""
        return None

    @classmethod
    def read_paths(cls, args: ArgumentsT) -> tuple[str, ...]:
        """The paths as they are in the arguments."""
        return ()

    @classmethod
    def write_paths(cls, args: ArgumentsT) -> tuple[str, ...]:
        return ()

    @classmethod
    def changed_paths(cls, args: ArgumentsT) -> tuple[str, ...]:
        """Of the written paths those whose present text the call reads: a part of it may be shown,
        or written to another place. By default none: the whole text is new."""
        return ()

    @classmethod
    def repair_values(cls, arguments: Arguments, report: Report) -> Arguments:
        """Arguments whose names are right, with values that models write in another form."""
        return arguments

    # --- the contract --------------------------------------------------------------------

    def repair(self, arguments: Arguments) -> RepairedArguments:
        report = Report()
        named = arguments
        if not self._fits(arguments):
            table = NameTable(self.argument_aliases, self.value_aliases)
            named = fit_arguments(arguments, _make_schema(self.arguments_type), table, report)
        for name in self.path_arguments:
            if isinstance(path := named.get(name), str) and (plain := _clean_path(path)) != path:
                named = {**named, name: plain}
                report.guess(f"`{name}` is `{plain}`")
        named = self.repair_values(named, report)
        notes = tuple(report.notes)
        return RepairedArguments(named if notes else arguments, notes, is_guessed=report.is_guessed)

    def _fits(self, arguments: Arguments) -> bool:
        """Whether these are arguments under their own names and of their types."""
        known = self._spec.schema["properties"]
        try:
            return all(name in known for name in arguments) and bool(
                self.parse_arguments(arguments)
            )
        except ToolError:
            return False

    def check(self, arguments: Arguments) -> str | None:
        try:
            return self.validate(self.parse_arguments(arguments))
        except ToolError as error:
            return str(error)

    def summary(self, arguments: Arguments) -> str:
        return escape_multiline(summarize_call(self.name, arguments))

    def access(self, arguments: Arguments, session_id: str) -> Access:
        access = self.describe_access(arguments, self.sessions.cwd(session_id))
        if not access.files:
            return access
        keys: dict[str, set[str]] = {"read": set(), "write": set()}
        for file in access.files:
            keys[file.mode].add(self.sessions.resource_key(access.cwd, file.path))
        reads, writes = frozenset(keys["read"]), frozenset(keys["write"])
        return msgspec.structs.replace(access, reads=reads, writes=writes)

    @classmethod
    def describe_access(cls, arguments: Arguments, cwd: str) -> Access:
        """What a call in this working directory touches, as far as its arguments say it."""
        args = cls.parse_arguments(arguments)
        read = [FileAccess(path, "read", cls.is_recursive) for path in cls.read_paths(args)]
        shown = cls.changed_paths(args)
        written = [
            FileAccess(path, "write", is_shown=path in shown) for path in cls.write_paths(args)
        ]
        return Access(files=(*read, *written), cwd=cwd)

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        given = self.parse_arguments(arguments)
        try:
            return await self.run(given, self.sessions.make_call_site(context))
        except WorkspaceError as error:
            raise ToolError(str(error)) from error

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("unknown", f"{self.name} cannot be checked afterwards")

    @classmethod
    def parse_arguments(cls, arguments: Arguments) -> ArgumentsT:
        """The arguments as `arguments_type`; ToolError with a message for the model."""
        named: Arguments = {}
        for key, value in arguments.items():
            name = cls.argument_aliases.get(key, key)
            if name in named:
                raise ToolError(f"invalid arguments for {cls.name}: `{name}` is given twice")
            named[name] = value
        try:
            # Not strict: small models write "true" and "5" for true and 5.
            return cast(ArgumentsT, msgspec.convert(named, cls.arguments_type, strict=False))
        except (msgspec.ValidationError, ValueError) as error:
            schema = _make_schema(cls.arguments_type)
            problem = explain_mismatch(named, schema) or error
            # An unknown name is answered with all that are known, unless another one is missing.
            is_known = all(name in schema["properties"] for name in named)
            is_missing = any(name not in named for name in schema["required"])
            takes = f". {list_arguments(cls.name, schema)}" if is_known or is_missing else ""
            raise ToolError(f"invalid arguments for {cls.name}: {problem}{takes}") from error


def explain_mismatch(arguments: Arguments, schema: dict[str, Any]) -> str:
    """Which argument does not fit the schema, in words for the model; empty if all do."""
    from treadle.lib.json.coercion import coerce
    from treadle.lib.json.schema import find_mismatch

    return str(find_mismatch(coerce(arguments, schema), schema) or "")


def _clean_path(path: str) -> str:
    """A path without the `file://` and the line end that models write around it."""
    return path.strip().removeprefix("file://") if path.strip() else path


def describe(argument: str) -> msgspec.Meta:
    """The text for the model about one argument, inside `Annotated`."""
    return msgspec.Meta(description=argument)


def escape_multiline(text: str) -> str:
    """Text for the user's screen: control characters become visible symbols."""
    return sanitize.escape_invisible(text, keep=_KEPT_CHARACTERS)


def load_description(folder: Path, name: str) -> str:
    """The text for the model: `NAME.md` in the folder of the tool's module."""
    return (folder / f"{name}.md").read_text(encoding="utf-8").strip()


@cache
def _make_spec(tool_class: type[BuiltinTool[Any]]) -> ToolSpec:
    """Made once per tool: it does not depend on the workspace."""
    folder = Path(sys.modules[tool_class.__module__].__file__ or "").parent
    return ToolSpec(
        name=tool_class.name,
        description=load_description(folder, tool_class.name),
        schema=_shorten_schema(_make_schema(tool_class.arguments_type)),
        effect=tool_class.effect,
        concurrent=tool_class.concurrent,
        timeout=tool_class.timeout,
        detachable=tool_class.detachable,
        max_result_chars=tool_class.max_result_chars,
        needs_policy=tool_class.needs_policy,
        aliases=tool_class.aliases,
        text_argument=tool_class.text_argument,
        grammar=tool_class.grammar,
        kind=tool_class.kind,
    )


@cache
def _make_schema(arguments_type: type[msgspec.Struct]) -> dict[str, Any]:
    (whole,), parts = msgspec.json.schema_components([arguments_type], ref_template="{name}")
    schema: dict[str, Any] = _inline_references(parts.get(whole.get("$ref", ""), whole), parts)
    schema.setdefault("required", [])
    schema["additionalProperties"] = False
    return schema


def _shorten_schema(part: Any) -> Any:
    """As a model gets it: without what only a check of the arguments needs."""
    if isinstance(part, list):
        return [_shorten_schema(one) for one in part]
    if not isinstance(part, dict):
        return part
    return {
        key: {name: _shorten_schema(one) for name, one in value.items()}
        if key == "properties"
        else _shorten_schema(value)
        for key, value in part.items()
        if key != "additionalProperties" and not (key == "required" and not value)
    }


def _inline_references(part: Any, parts: Mapping[str, Any]) -> Any:
    """Without references, titles and empty defaults: fewer tokens, same meaning."""
    if isinstance(part, list):
        return [_inline_references(one, parts) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        rest = {key: value for key, value in part.items() if key != "$ref"}
        return _inline_references({**parts[part["$ref"]], **rest}, parts)
    return {
        key: {name: _inline_references(one, parts) for name, one in value.items()}
        if key == "properties"
        else _inline_references(value, parts)
        for key, value in part.items()
        if key != "title" and not (key == "default" and value in ("", 0, False, [], (), None))
    }
