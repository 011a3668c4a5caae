"""The promises of a Hook (core/contracts/hook.py), as checks.

await check_hook(make)                  with an input for each of its points
await check_hook(make, [hook_input])    and with your own inputs
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_args

from treadle.core.contracts.hook import (
    ALLOWED_ANSWERS,
    Hook,
    HookInput,
    HookPoint,
    get_hook_timeout,
)
from treadle.core.contracts.hook_data import (
    BeforeEffectData,
    ConfigChangeData,
    FileChangedData,
    InstructionsLoadedData,
    NotificationData,
    PermissionDeniedData,
    PermissionRequestData,
    PostCompactData,
    PostToolUseData,
    PreCompactData,
    PreToolUseData,
    SessionEndData,
    SessionStartData,
    StopData,
    StopFailureData,
    SubagentStartData,
    SubagentStopData,
    UserPromptSubmitData,
)
from treadle.core.contracts.tool import Access
from treadle.testing.conformance.promises import (
    Promise,
    assert_cancels,
    assert_nothing_runs,
    build,
    keep_promises,
    track_tasks,
)

MakeHook = Callable[[], Hook | Awaitable[Hook]]
Inputs = Sequence[HookInput[Any]]

_CALL = PreToolUseData(
    tool_name="bash",
    tool_input={"command": "ls", "options": {"depth": [1, 2]}},
    call_id="call_1",
    summary="[bash: ls]",
    access=Access(command="ls"),
)
_DATA: tuple[tuple[HookPoint, object], ...] = (
    ("session_start", SessionStartData(source="startup")),
    ("subagent_start", SubagentStartData(agent_type="helper")),
    ("user_prompt_submit", UserPromptSubmitData(prompt="Tidy up. \ud800")),
    ("pre_tool_use", _CALL),
    ("pre_tool_use", PreToolUseData(**{**_CALL, "tool_name": "other", "tool_input": {}})),
    ("before_effect", BeforeEffectData(**_CALL)),
    ("permission_request", PermissionRequestData(**_CALL)),
    ("permission_denied", PermissionDeniedData(**_CALL, reason="denied: not here")),
    ("post_tool_use", PostToolUseData(**_CALL, tool_response="a.txt\n", is_error=False)),
    ("post_tool_use", PostToolUseData(**_CALL, tool_response="", is_error=True)),
    ("pre_compact", PreCompactData(trigger="auto")),
    ("post_compact", PostCompactData(trigger="manual")),
    (
        "instructions_loaded",
        InstructionsLoadedData(
            file_path="/repo/AGENTS.md", memory_type="Project", load_reason="session_start"
        ),
    ),
    ("file_changed", FileChangedData(file_path="/repo/a.py", event="unlink")),
    ("config_change", ConfigChangeData(source="user_settings", file_path="/home/config.toml")),
    ("subagent_stop", SubagentStopData(last_message="Done.", rounds=2, agent_type="helper")),
    ("stop", StopData(last_message="", rounds=0)),
    ("stop_failure", StopFailureData(error="the provider is overloaded")),
    ("notification", NotificationData(notification_type="permission_prompt")),
    ("session_end", SessionEndData()),
)
HOOK_INPUTS: Inputs = tuple([HookInput(point, "session", "turn-1", data) for point, data in _DATA])


async def check_hook(make: MakeHook, inputs: Inputs = ()) -> None:
    """Raise an AssertionError that names the first broken promise."""
    await keep_promises("hook", HOOK_PROMISES, make, (*HOOK_INPUTS, *inputs))


async def has_points_and_a_timeout(make: MakeHook, inputs: Inputs) -> None:
    hook = await build(make)
    assert hook.points, "it has no points: it would never run"
    unknown = set(hook.points) - set(get_args(HookPoint))
    assert not unknown, f"it has unknown points: {sorted(unknown)}"
    timeout = get_hook_timeout(hook)
    assert timeout is None or timeout > 0, f"the timeout is {timeout}"


async def answers_what_its_points_allow(make: MakeHook, inputs: Inputs) -> None:
    hook = await build(make)
    for hook_input in _choose_inputs(hook, inputs):
        answer = await hook.run(hook_input)
        allowed = ALLOWED_ANSWERS[hook_input.point]
        names = [kind.__name__ for kind in allowed]
        assert answer is None or isinstance(answer, allowed), (
            f"at {hook_input.point} it answers {answer!r}; allowed are None and {names}"
        )


async def does_not_change_its_input(make: MakeHook, inputs: Inputs) -> None:
    hook = await build(make)
    for hook_input in _choose_inputs(hook, inputs):
        before = copy.deepcopy(hook_input.data)
        await hook.run(hook_input)
        assert hook_input.data == before, f"the data of {hook_input.point} is changed"


async def leaves_nothing_running(make: MakeHook, inputs: Inputs) -> None:
    hook = await build(make)
    with track_tasks() as tasks:
        for hook_input in _choose_inputs(hook, inputs):
            await hook.run(hook_input)
    await assert_nothing_runs(tasks, "a hook")


async def ends_when_it_is_cancelled(make: MakeHook, inputs: Inputs) -> None:
    for hook_input in _choose_inputs(await build(make), inputs):
        hook = await build(make)
        await assert_cancels(hook.run(hook_input), f"the hook at {hook_input.point}")


HOOK_PROMISES: tuple[Promise, ...] = (
    has_points_and_a_timeout,
    answers_what_its_points_allow,
    does_not_change_its_input,
    leaves_nothing_running,
    ends_when_it_is_cancelled,
)


def _choose_inputs(hook: Hook, inputs: Inputs) -> Inputs:
    """Copies of the inputs of its points: one hook cannot spoil those of another."""
    return [copy.deepcopy(one) for one in inputs if one.point in hook.points]
