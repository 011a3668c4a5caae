"""Typed programs: what the checkers say about hooks.

`assert_type` states what each expression is. Wrong lines end with `# type: ignore`, and an ignore
that is not needed is an error.
"""

from __future__ import annotations

from typing import Any, assert_type

from treadle.contracts import (
    Access,
    AddContext,
    Arguments,
    Block,
    Hook,
    HookAnswer,
    HookInput,
    HookPoint,
    PostToolUseData,
    PreToolUseData,
    UserPromptSubmitData,
)
from treadle.hooks import hook


@hook("pre_tool_use", matcher="bash")
def check(hook_input: HookInput[PreToolUseData]) -> Block | None:
    assert_type(hook_input.data["tool_name"], str)
    assert_type(hook_input.data["tool_input"], Arguments)
    assert_type(hook_input.data["access"], Access)
    hook_input.data["prompt"]  # type: ignore[typeddict-item]
    return None


@hook("post_tool_use", timeout=5)
async def shorten(hook_input: HookInput[PostToolUseData]) -> AddContext | str | None:
    assert_type(hook_input.data["is_error"], bool)
    return hook_input.data["tool_response"]


@hook("pre_tool_use", "post_tool_use")
def watch(hook_input: HookInput) -> None:
    assert_type(hook_input.data["tool_name"], Any)


@hook("user_prompt_submit")
def without_a_type(hook_input: HookInput) -> str:
    return f"The user wrote {len(hook_input.data['prompt'])} characters."


@hook("user_prompt_submit")  # type: ignore[arg-type]
def of_another_point(hook_input: HookInput[PreToolUseData]) -> None:
    return None


hook("before_tool_use")  # type: ignore[call-overload]


class Polite:
    points: frozenset[HookPoint] = frozenset({"user_prompt_submit"})

    async def run(self, hook_input: HookInput[UserPromptSubmitData]) -> HookAnswer | None:
        return Block("say please") if "please" not in hook_input.data["prompt"] else None


as_hooks: list[Hook] = [check, shorten, watch, Polite()]
