"""What a server may ask of its client, as callbacks of the SDK: roots, sampling, questions, logs.

A server asks during a call, so the context of that call is used to ask the user and to account for
what it costs; the time limit of the call rests meanwhile. Used by connection.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mcp_types as types
import msgspec

from treadle.core.errors import TreadleError
from treadle.core.transcript.content import Text, UserContent
from treadle.tools.mcp.client_options import (
    McpClientOptions,
    McpLogMessage,
    SamplingMessage,
    SamplingRequest,
)
from treadle.tools.mcp.results import convert_block

if TYPE_CHECKING:
    from treadle.core.contracts.tool import ToolContext
    from treadle.tools.builtin.conversation.ask import AskUser

MAX_LOG_MESSAGES = 500
MAX_LOG_CHARS = 2_000
MAX_TIMEOUT_FACTOR = 10  # a call that reports progress may take this many times its limit
LOG_LEVEL: types.LoggingLevel = "info"  # the least important that servers send


class RunningCall:
    """A call that a server works on, with a time limit that can rest."""

    def __init__(self, context: ToolContext, deadline: asyncio.Timeout, limit: float) -> None:
        self.context = context
        self.deadline = deadline
        self._limit = limit
        self._last = asyncio.get_running_loop().time() + limit * MAX_TIMEOUT_FACTOR
        self._pauses = 0

    def extend(self) -> None:
        """It reports progress: it gets its time again, up to a multiple of it."""
        if not self._pauses:
            now = asyncio.get_running_loop().time()
            self._reschedule(min(now + self._limit, self._last))

    def pause(self) -> None:
        self._pauses += 1
        self._reschedule(None)

    def unpause(self) -> None:
        self._pauses -= 1
        if not self._pauses:
            self._reschedule(asyncio.get_running_loop().time() + self._limit)

    def _reschedule(self, when: float | None) -> None:
        try:
            self.deadline.reschedule(when)
        except RuntimeError:  # the call has just ended
            pass


class ClientCallbacks:
    """The callbacks of one connection."""

    def __init__(self, server: str, options: McpClientOptions) -> None:
        self._server, self._options = server, options
        self.calls: list[RunningCall] = []
        self.logs: deque[McpLogMessage] = deque(maxlen=MAX_LOG_MESSAGES)

    def as_client_arguments(self) -> dict[str, Any]:
        """The arguments of the SDK's Client: it declares what it has a callback for."""
        options = self._options
        return {
            "list_roots_callback": self.list_roots if options.roots else None,
            "sampling_callback": self.sample if options.sampler is not None else None,
            "elicitation_callback": self.elicit if options.can_ask else None,
            "logging_callback": self.log,
            "log_level": LOG_LEVEL,
        }

    @contextmanager
    def _pause_deadlines(self) -> Iterator[ToolContext | None]:
        """While a person or a model answers the server, no call runs out of time."""
        paused = list(self.calls)
        for call in paused:
            call.pause()
        try:
            yield paused[-1].context if paused else None
        finally:
            for call in paused:
                call.unpause()

    async def list_roots(self, context: object) -> types.ListRootsResult:
        roots = [{"uri": path.as_uri(), "name": path.name} for path in self._options.roots]
        return types.ListRootsResult(roots=[types.Root.model_validate(root) for root in roots])

    async def sample(
        self, _: object, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        assert self._options.sampler is not None, "declared only with one"
        messages = tuple(
            SamplingMessage(message.role, tuple(map(_convert_content, message.content_as_list)))
            for message in params.messages
        )
        request = SamplingRequest(
            self._server,
            messages,
            params.system_prompt or "",
            params.max_tokens,
            params.temperature,
        )
        try:
            with self._pause_deadlines() as context:
                reply = await self._options.sampler(request, context)
        except TreadleError as error:
            return types.ErrorData(code=-1, message=str(error))
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(text=reply.text),
            model=reply.model,
            stop_reason=reply.stop_reason,
        )

    async def elicit(
        self, _: object, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        from treadle.tools.mcp.elicitation import ask_form, ask_link

        with self._pause_deadlines() as context:
            ask: AskUser | None = context.services.get("ask") if context is not None else None
            if ask is None:
                return types.ElicitResult(action="cancel")  # nobody saw it
            try:
                if isinstance(params, types.ElicitRequestURLParams):
                    open_url = self._options.open_url
                    answer = await ask_link(ask, self._server, params.message, params.url, open_url)
                else:
                    schema = params.requested_schema
                    answer = await ask_form(ask, self._server, params.message, schema)
            except (KeyError, TypeError, AttributeError) as error:
                problem = f"the requested schema is invalid: {error!r}"
                return types.ErrorData(code=types.INVALID_PARAMS, message=problem)
        content: Any = answer.content
        return types.ElicitResult(action=answer.action, content=content)

    def warn(self, text: str) -> None:
        """A line of our own among those of the server."""
        self.logs.append(McpLogMessage("warning", text))

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        data = params.data
        text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
        message = McpLogMessage(params.level, text[:MAX_LOG_CHARS], params.logger or "")
        self.logs.append(message)


def _convert_content(block: Any) -> UserContent:
    if isinstance(block, types.TextContent | types.ImageContent | types.AudioContent):
        return convert_block(block)
    return Text(f"[{block.type}]")
