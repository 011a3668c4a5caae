"""The promises of a Tool (core/contracts/tool.py), as checks.

    await check_tool(make, {"city": "Graz"}, failing={"city": "nowhere"})

`make` returns a new tool; `arguments` are valid ones, whose effect may happen several times.
"""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Awaitable, Callable
from typing import get_args

import msgspec

from treadle.core.contracts.tool import Access, Preview, ProbeResult, Tool, ToolContext, ToolOutput
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments, Document, Image, Text
from treadle.core.transcript.entries import EffectClass
from treadle.testing.conformance.promises import (
    Promise,
    assert_cancels,
    assert_nothing_runs,
    assert_returns_at_once,
    build,
    keep_promises,
    track_tasks,
)
from treadle.testing.tools import make_tool_context

MAX_NAME_CHARS = 64


class ToolCase(msgspec.Struct, frozen=True):
    """A tool and what it is called with."""

    make: Callable[[], Tool | Awaitable[Tool]]
    arguments: Arguments
    failing: Arguments | None
    context: ToolContext


async def check_tool(
    make: Callable[[], Tool | Awaitable[Tool]],
    arguments: Arguments | None = None,
    *,
    failing: Arguments | None = None,
    context: ToolContext | None = None,
) -> None:
    """Raise an AssertionError that names the first broken promise.

    `failing` are valid arguments of a call that has to fail. `context` has what the tool needs:
    `make_tool_context(workspace=…, deps=…)`.
    """
    case = ToolCase(make, arguments or {}, failing, context or make_tool_context())
    await keep_promises("tool", TOOL_PROMISES, case)


def assert_valid_spec(tool: Tool) -> None:
    spec = tool.spec
    assert spec.name.replace("_", "").replace("-", "").isalnum(), (
        f"{spec.name!r}: providers accept only letters, digits, _ and -"
    )
    assert spec.name.isascii(), f"{spec.name!r}: providers accept only ASCII"
    assert len(spec.name) <= MAX_NAME_CHARS, f"{spec.name}: providers accept up to 64 characters"
    assert spec.description.strip(), f"{spec.name}: the description is empty"
    assert spec.schema.get("type") == "object", f"{spec.name}: arguments are an object"
    try:
        msgspec.json.encode(spec.schema)
    except TypeError as error:
        raise AssertionError(f"{spec.name}: the schema is not JSON: {error}") from error
    effects = get_args(EffectClass)
    assert spec.effect in effects, f"{spec.name}: {spec.effect!r} is not one of {effects}"


def assert_checks_arguments(tool: Tool) -> None:
    spec = tool.spec
    if spec.schema.get("required"):
        problem = tool.check({})
        assert isinstance(problem, str), f"{spec.name}: missing arguments are a problem"
        assert problem.strip(), f"{spec.name}: the problem says nothing"
    summary = tool.summary({})
    assert isinstance(summary, str), f"{spec.name}: the summary is a text, also without arguments"
    assert "\n" not in summary, f"{spec.name}: the summary is one line"


async def has_a_spec_that_providers_accept(case: ToolCase) -> None:
    is_tool = hasattr(case.make, "spec") and not isinstance(case.make, type)
    assert not is_tool, "a tool is given; give a function that makes one: check_tool(lambda: tool)"
    tool = await build(case.make)
    assert_valid_spec(tool)
    assert tool.spec == tool.spec, "the spec is another one each time"


async def finds_what_is_wrong_with_arguments(case: ToolCase) -> None:
    tool = await build(case.make)
    problem = tool.check(case.arguments)
    assert problem is None, f"the valid arguments are refused: {problem}"
    assert_checks_arguments(tool)
    assert "\n" not in tool.summary(case.arguments), "the summary is one line"


async def says_what_a_call_touches(case: ToolCase) -> None:
    tool = await build(case.make)
    access = tool.access(case.arguments, "session")
    assert isinstance(access, Access), f"access is {access!r}"
    assert tool.access(case.arguments, "session") == access, "the access of one call changes"
    assert_returns_at_once(lambda: tool.access(case.arguments, "session"), "access()")


async def shows_a_preview_without_an_effect(case: ToolCase) -> None:
    tool = await build(case.make)
    before = copy.deepcopy(case.arguments)
    preview = await tool.preview(case.arguments, case.context)
    assert preview is None or isinstance(preview, Preview), f"the preview is {preview!r}"
    if tool.spec.effect == "verifiable":
        evidence = await tool.evidence(case.arguments, case.context)
        result = await tool.probe(case.arguments, evidence, case.context)
        assert result.outcome != "done", f"the preview has the effect: {result.evidence}"
    assert case.arguments == before, "the preview changes the arguments"


async def returns_an_output(case: ToolCase) -> None:
    tool = await build(case.make)
    with track_tasks() as tasks:
        output = await tool.call(copy.deepcopy(case.arguments), case.context)
    assert isinstance(output, ToolOutput), f"the call returns {output!r}, not a ToolOutput"
    if not isinstance(output.content, str):
        assert isinstance(output.content, tuple), "the content is a text or a tuple of parts"
        for part in output.content:
            assert isinstance(part, (Text, Image, Document)), f"{part!r} is no part of a result"
    msgspec.json.encode(output.data)
    await assert_nothing_runs(tasks, "a call")


async def does_not_change_its_arguments_or_print(case: ToolCase) -> None:
    tool = await build(case.make)
    before, printed = copy.deepcopy(case.arguments), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        await tool.call(case.arguments, case.context)
    assert case.arguments == before, "the call changes its arguments"
    assert not printed.getvalue(), f"the call prints {printed.getvalue()!r}"


async def fails_with_a_tool_error(case: ToolCase) -> None:
    if case.failing is None:
        return
    tool = await build(case.make)
    try:
        output = await tool.call(case.failing, case.context)
    except ToolError as error:
        reason = str(error)
    else:
        assert output.is_error, "the call that has to fail returns an output without an error"
        reason = str(output.content)
    assert reason.strip(), "the error says nothing: the model has to know what to do"


async def ends_when_it_is_cancelled(case: ToolCase) -> None:
    tool = await build(case.make)
    await assert_cancels(tool.call(copy.deepcopy(case.arguments), case.context), "a call")


async def probes_tell_what_happened(case: ToolCase) -> None:
    """Of a verifiable tool: a call that was not made is not done, one that was made is."""
    tool = await build(case.make)
    if tool.spec.effect != "verifiable":
        return
    arguments, context = case.arguments, case.context
    evidence = await tool.evidence(arguments, context)
    stored = msgspec.json.decode(msgspec.json.encode(evidence))  # as the log gives it back
    before = await tool.probe(arguments, stored, context)
    assert isinstance(before, ProbeResult), f"the probe returns {before!r}"
    assert before.outcome != "done", f"a call that was not made is done: {before.evidence}"
    output: object = await tool.call(copy.deepcopy(arguments), context)
    if not isinstance(output, ToolOutput):
        return  # another promise tells of it
    after = await tool.probe(arguments, stored, context)
    assert after.outcome != "not_done", f"a call that was made is not done: {after.evidence}"
    tells = (before.outcome, after.outcome) != ("unknown", "unknown")
    assert tells, "the probe tells nothing: define `probe`, or choose another effect"


TOOL_PROMISES: tuple[Promise, ...] = (
    has_a_spec_that_providers_accept,
    finds_what_is_wrong_with_arguments,
    says_what_a_call_touches,
    shows_a_preview_without_an_effect,
    probes_tell_what_happened,
    ends_when_it_is_cancelled,  # before the calls that are awaited: one may never end
    returns_an_output,
    does_not_change_its_arguments_or_print,
    fails_with_a_tool_error,
)
