from __future__ import annotations

from pathlib import Path
from typing import get_args

from treadle.contracts import AddContext, HookInput, HookPoint
from treadle.core.contracts.hook_data import HOOK_DATA
from treadle.hooks import hook
from treadle.testing import check_hook
from treadle.testing.conformance.hook import HOOK_INPUTS
from treadle.workspace import CheckpointRecorder, Checkpoints


async def test_a_function_keeps_the_promises_of_a_hook():
    @hook("session_start", "post_tool_use")
    def add_time(hook_input: HookInput) -> str:
        return "It is late."

    @hook(*get_args(HookPoint))
    async def watch(hook_input: HookInput) -> AddContext | None:
        return None

    await check_hook(lambda: add_time)
    await check_hook(lambda: watch)


async def test_the_hook_of_the_checkpoints_keeps_the_promises_of_a_hook(own_place: Path):
    checkpoints = Checkpoints(own_place / "cwd", own_place / "checkpoints")
    await check_hook(lambda: CheckpointRecorder(checkpoints, lambda entry: None).hook)


def test_the_suite_has_an_input_for_every_point_with_its_keys():
    assert {one.point for one in HOOK_INPUTS} == set(get_args(HookPoint))
    for one in HOOK_INPUTS:
        assert set(one.data) == set(HOOK_DATA[one.point].__annotations__)
