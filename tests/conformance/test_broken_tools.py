"""Each promise of a tool, a source and a workspace: what breaks it is found and named."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conformance.broken import assert_all_are_broken, assert_names_the_promise
from treadle import tool
from treadle.contracts import (
    Access,
    Arguments,
    BaseSource,
    BaseTool,
    CommandResult,
    FileContent,
    Preview,
    ProbeResult,
    ProgramResult,
    RunningCommand,
    Tool,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolSource,
    ToolSpec,
    WrappedWorkspace,
)
from treadle.testing import check_tool, check_tool_source, check_workspace
from treadle.testing.conformance import source as source_promises
from treadle.testing.conformance import tool as tool_promises
from treadle.testing.conformance import workspace as workspace_promises
from treadle.testing.conformance.promises import Promise
from treadle.workspace import LocalWorkspace, WorkspaceOptions

# --- tools ---------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


class Good(BaseTool):
    """Puts a key into a set, once."""

    spec = ToolSpec("put", "Put a key.", SCHEMA, effect="verifiable")

    def __init__(self) -> None:
        self.keys: set[str] = set()

    def check(self, arguments: Arguments) -> str | None:
        return None if "key" in arguments else "give a key"

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        if arguments["key"] == "bad":
            raise ToolError("bad is not a key; choose another one")
        self.keys.add(arguments["key"])
        return ToolOutput("put")

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("done" if arguments["key"] in self.keys else "not_done", "looked")


class BadName(Good):
    spec = msgspec.structs.replace(Good.spec, name="put a key!")


class NoCheck(Good):
    def check(self, arguments: Arguments) -> str | None:
        return None


class ChangingAccess(Good):
    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return Access(writes=frozenset({str(next(self._numbers))}))


class EagerPreview(Good):
    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        await self.call(arguments, context)
        return None


class BlindProbe(Good):
    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("not_done", "did not look")


class PlainText(Good):
    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        await super().call(arguments, context)
        return "put"  # type: ignore[return-value]


class Prints(Good):
    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        print("putting")
        return await super().call(arguments, context)


class OtherErrors(Good):
    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        if arguments["key"] == "bad":
            raise KeyError("bad")
        return await super().call(arguments, context)


class LeavesWork(Good):
    """Cancelled, it goes on in the background."""

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.work = asyncio.create_task(asyncio.sleep(1_000))
            raise
        return await super().call(arguments, context)


BROKEN_TOOLS: dict[Promise, type[Good]] = {
    tool_promises.has_a_spec_that_providers_accept: BadName,
    tool_promises.finds_what_is_wrong_with_arguments: NoCheck,
    tool_promises.says_what_a_call_touches: ChangingAccess,
    tool_promises.shows_a_preview_without_an_effect: EagerPreview,
    tool_promises.probes_tell_what_happened: BlindProbe,
    tool_promises.returns_an_output: PlainText,
    tool_promises.does_not_change_its_arguments_or_print: Prints,
    tool_promises.fails_with_a_tool_error: OtherErrors,
    tool_promises.ends_when_it_is_cancelled: LeavesWork,
}


async def test_the_tool_that_the_broken_ones_change_keeps_the_promises():
    await check_tool(Good, {"key": "a"}, failing={"key": "bad"})
    assert_all_are_broken(BROKEN_TOOLS, tool_promises.TOOL_PROMISES)


@pytest.mark.parametrize(("promise", "broken"), BROKEN_TOOLS.items())
async def test_a_broken_tool_is_found(promise: Promise, broken: type[Good]):
    with assert_names_the_promise("tool", promise):
        await check_tool(broken, {"key": "a"}, failing={"key": "bad"})


class NoProbe(Good):
    probe = BaseTool.probe


class ChangesArguments(Good):
    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        output = await super().call(arguments, context)
        arguments["key"] = "other"
        return output


class OnlyText(Good):
    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        return "put"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (NoProbe, tool_promises.probes_tell_what_happened),
        (ChangesArguments, tool_promises.does_not_change_its_arguments_or_print),
        (OnlyText, tool_promises.returns_an_output),
    ],
)
async def test_a_verifiable_tool_is_told_which_promise_it_breaks(
    broken: type[Good], promise: Promise
):
    with assert_names_the_promise("tool", promise):
        await check_tool(broken, {"key": "a"}, failing={"key": "bad"})


@tool
async def put(key: str) -> str:
    "Put a key."
    return key


@pytest.mark.parametrize("given", [Good(), put])
async def test_a_tool_in_place_of_a_function_that_makes_one_is_named(given: Any):
    with pytest.raises(AssertionError, match="a tool is given; give a function that makes one"):
        await check_tool(given, {"key": "a"})


async def test_a_source_in_place_of_a_function_that_makes_one_is_named():
    given: Any = GoodSource()
    with pytest.raises(AssertionError, match="a GoodSource is given; give a function that makes"):
        await check_tool_source(given)


async def test_a_tool_that_swallows_its_cancellation_is_found(monkeypatch: pytest.MonkeyPatch):
    class Deaf(Good):
        async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
            if context.call_id == "slow":
                while True:
                    try:
                        await asyncio.sleep(1)
                        break
                    except asyncio.CancelledError:
                        continue
            return await super().call(arguments, context)

    from treadle.testing import make_tool_context
    from treadle.testing.conformance import promises

    monkeypatch.setattr(promises, "END_LIMIT", 0.05)
    context = msgspec.structs.replace(make_tool_context(), call_id="slow")
    with pytest.raises(AssertionError, match="does not end when it is cancelled"):
        await promises.assert_cancels(Deaf().call({"key": "a"}, context), "a call")


# --- sources -------------------------------------------------------------------------------


class GoodSource(BaseSource):
    name = "good"

    def __init__(self) -> None:
        self.is_connected = True
        self._tools: Sequence[Tool] = (Remote(self),)

    def tools(self) -> Sequence[Tool]:
        return self._tools


class Remote(Good):
    def __init__(self, source: GoodSource) -> None:
        super().__init__()
        self._source = source

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        if not self._source.is_connected:
            raise ToolError("the server is gone")
        return ToolOutput("ok")


class NoName(GoodSource):
    name = ""


class NewList(GoodSource):
    def tools(self) -> Sequence[Tool]:
        return list(self._tools)


class TwoAlike(GoodSource):
    def __init__(self) -> None:
        super().__init__()
        self._tools = (Good(), Good())


class Vanishing(GoodSource):
    def tools(self) -> Sequence[Tool]:
        return self._tools if self.is_connected else ()


class LeavesConnection(GoodSource):
    async def open(self) -> None:
        self.work = asyncio.create_task(asyncio.sleep(1_000))


BROKEN_SOURCES: dict[Promise, type[GoodSource]] = {
    source_promises.has_a_name_and_instructions: NoName,
    source_promises.returns_the_same_object_while_nothing_changed: NewList,
    source_promises.has_tools_that_providers_accept: TwoAlike,
    source_promises.keeps_its_tools_when_their_server_is_gone: Vanishing,
    source_promises.can_be_closed_twice_and_leaves_nothing_running: LeavesConnection,
}


async def disconnect(source: ToolSource) -> None:
    assert isinstance(source, GoodSource)
    source.is_connected = False


async def test_the_source_that_the_broken_ones_change_keeps_the_promises():
    await check_tool_source(GoodSource, disconnect=disconnect)
    assert_all_are_broken(BROKEN_SOURCES, source_promises.SOURCE_PROMISES)


@pytest.mark.parametrize(("promise", "broken"), BROKEN_SOURCES.items())
async def test_a_broken_source_is_found(promise: Promise, broken: type[GoodSource]):
    with assert_names_the_promise("tool source", promise):
        await check_tool_source(broken, disconnect=disconnect)


# --- workspaces ----------------------------------------------------------------------------


class LosesMode(WrappedWorkspace):
    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        return await super().write(path, data, expected=expected, mode=0o600)


class Overwrites(WrappedWorkspace):
    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        return await super().write(path, data, mode=mode)


class Escapes(WrappedWorkspace):
    async def read(self, path: str, *, limit: int | None = None) -> FileContent:
        if path.startswith("out/"):
            return FileContent(b"", "", 0, 0)
        return await super().read(path, limit=limit)


class AlwaysFine(WrappedWorkspace):
    async def run(self, command: str, **options: Any) -> CommandResult:
        done = await super().run(command, **options)
        return msgspec.structs.replace(done, exit_code=0)


class MixesStreams(WrappedWorkspace):
    async def execute(self, argv: Sequence[str], **options: Any) -> ProgramResult:
        done = await super().execute(argv, **options)
        return msgspec.structs.replace(done, stdout=done.stdout + done.stderr, stderr=b"")


class Detaches(WrappedWorkspace):
    """A command that ends early leaves its processes: they are started as a session of theirs."""

    only_timeouts = True

    async def run(self, command: str, **options: Any) -> CommandResult:
        has_timeout = options.get("timeout") is not None
        if "& echo $! > child" in command and has_timeout == self.only_timeouts:
            # A process of this one, which the workspace does not know.
            child = await asyncio.create_subprocess_exec("sleep", "1000")
            CHILDREN.append(child)
            command = command.replace("sleep 1000 & echo $! > child", f"echo {child.pid} > child")
        return await super().run(command, **options)


class DetachesWhenCancelled(Detaches):
    only_timeouts = False


class Foreground(WrappedWorkspace):
    async def start(self, command: str, **options: Any) -> RunningCommand:
        return await super().start(command.replace("exit 2", "exit 3"), **options)


class ClosesOnce(WrappedWorkspace):
    is_closed = False

    async def aclose(self) -> None:
        if self.is_closed:
            raise RuntimeError("closed already")
        self.is_closed = True
        await super().aclose()


CHILDREN: list[asyncio.subprocess.Process] = []
BROKEN_WORKSPACES: dict[Promise, type[WrappedWorkspace]] = {
    workspace_promises.files_are_read_and_written: LosesMode,
    workspace_promises.a_write_expects_the_digest_of_the_last_read: Overwrites,
    workspace_promises.paths_stay_inside: Escapes,
    workspace_promises.a_command_reports_how_it_ended: AlwaysFine,
    workspace_promises.a_program_runs_without_a_shell: MixesStreams,
    workspace_promises.a_timeout_ends_a_command_with_its_processes: Detaches,
    workspace_promises.a_cancellation_ends_a_command_with_its_processes: DetachesWhenCancelled,
    workspace_promises.a_command_runs_in_the_background: Foreground,
    workspace_promises.can_be_closed_twice: ClosesOnce,
}


def test_every_promise_of_a_workspace_has_a_workspace_that_breaks_it():
    assert_all_are_broken(BROKEN_WORKSPACES, workspace_promises.WORKSPACE_PROMISES)


@pytest.mark.parametrize(("promise", "broken"), BROKEN_WORKSPACES.items())
async def test_a_broken_workspace_is_found(
    promise: Promise, broken: type[WrappedWorkspace], own_place: Path
):
    folders = (own_place / f"folder{number}" for number in itertools.count())

    async def make() -> WrappedWorkspace:
        folder = next(folders)
        folder.mkdir()
        return broken(await LocalWorkspace.open(folder, WorkspaceOptions(sandbox="off")))

    try:
        with assert_names_the_promise("workspace", promise):
            await check_workspace(make)
    finally:
        for child in CHILDREN:
            child.kill()
            await child.wait()
        CHILDREN.clear()
