"""A tool call as a task of the protocol (2025-11-25): started, polled, fetched, cancelled.

Its status is the progress that the user sees. The SDK has the messages of tasks and no function for
them. Used by connection.py for tools that declare it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

if TYPE_CHECKING:
    from mcp.client.session import ClientSession
    from mcp.shared.dispatcher import CallOptions, ProgressFnT

KEEP_MILLISECONDS = 3_600_000
MAX_POLL_SECONDS = 30.0
_OPEN_STATES = ("working", "input_required")


async def call_as_task(
    session: ClientSession,
    tool: str,
    arguments: dict[str, Any],
    on_progress: ProgressFnT,
) -> types.CallToolResult:
    """The result of the call. Cancelled, or out of time, it cancels the task."""
    params = types.CallToolRequestParams(
        name=tool, arguments=arguments, task=types.TaskMetadata(ttl=KEEP_MILLISECONDS)
    )
    task = (await _start_task(session, types.CallToolRequest(params=params), on_progress)).task
    try:
        # A task that needs input asks for it while its result is awaited.
        fetching = asyncio.create_task(_fetch_result(session, task.task_id))
        try:
            await _poll(session, task, on_progress, fetching)
            return await fetching
        finally:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
    except BaseException:
        with suppress(MCPError, TimeoutError):
            cancelled = types.CancelTaskRequestParams(task_id=task.task_id)
            request = types.CancelTaskRequest(params=cancelled)
            await asyncio.shield(session.send_request(request, types.CancelTaskResult, 2.0))
        raise


async def _start_task(
    session: ClientSession, request: types.CallToolRequest, on_progress: ProgressFnT
) -> types.CreateTaskResult:
    """Send the call. `send_request` of the SDK takes only a result for `tools/call`, and refuses
    the task that is right here; so this is what it does without that check."""
    data = request.model_dump(by_alias=True, mode="json", exclude_none=True)
    options: CallOptions = {"on_progress": on_progress}
    session._stamp(data, options)
    raw = await session._dispatcher.send_raw_request(data["method"], data["params"], options)
    return types.CreateTaskResult.model_validate(raw, by_name=False)


async def _fetch_result(session: ClientSession, task_id: str) -> types.CallToolResult:
    params = types.GetTaskPayloadRequestParams(task_id=task_id)
    return await session.send_request(
        types.GetTaskPayloadRequest(params=params), types.CallToolResult
    )


async def _poll(
    session: ClientSession,
    task: types.Task,
    on_progress: ProgressFnT,
    fetching: asyncio.Task[types.CallToolResult],
) -> None:
    """Until the result is there; each report of the status counts as progress."""
    status, polls = task.status, 0
    pause = min((task.poll_interval or 1000) / 1000, MAX_POLL_SECONDS)
    while status in _OPEN_STATES and not fetching.done():
        await asyncio.wait([fetching], timeout=pause)
        if fetching.done():
            return
        params = types.GetTaskRequestParams(task_id=task.task_id)
        seen = await session.send_request(types.GetTaskRequest(params=params), types.GetTaskResult)
        status, polls = seen.status, polls + 1
        await on_progress(polls, None, seen.status_message or status)
