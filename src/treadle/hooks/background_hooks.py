"""Commands of hooks that run beside the agent: `"async": true`.

They cannot answer. What one says in JSON at its end is for later: `systemMessage` for the user at
once, `additionalContext` for the model with the next result of a tool or the next message. The end
of the session waits for a moment and then stops them. Used by command_hook.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from treadle.core.contracts.hook import AddContext, HookAnswer, HookInput, HookPoint
from treadle.core.errors import TreadleError
from treadle.hooks.protocol import HookReply, truncate_context
from treadle.lib.tasks import cancel_all

END_SECONDS = 5.0  # for a notification or a last line of a log, at the end of the session


class BackgroundHooks:
    """The running commands of a session, and what they said."""

    points: frozenset[HookPoint] = frozenset({"post_tool_use", "user_prompt_submit", "session_end"})

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._running: set[asyncio.Task[None]] = set()
        self._contexts: list[tuple[str, str]] = []  # the session and the text

    def start(self, session_id: str, label: str, work: Awaitable[HookReply]) -> None:
        """Run the command of this session in the background."""
        task = asyncio.ensure_future(self._finish(session_id, label, work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _finish(self, session_id: str, label: str, work: Awaitable[HookReply]) -> None:
        try:
            reply = await work
        except TreadleError as error:
            self._notify(f"a background hook failed: {error}")
            return
        if reply.user_message:
            self._notify(reply.user_message)
        if reply.extra_context:
            text = truncate_context(f"The background hook {label} reports:\n{reply.extra_context}")
            self._contexts.append((session_id, text))

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        if hook_input.point == "session_end":
            if self._running:
                await asyncio.wait(self._running, timeout=END_SECONDS)
                await cancel_all(list(self._running))
            return None
        # A child gets what its own commands said; the next message of the user gets the rest.
        is_all = hook_input.point == "user_prompt_submit"
        texts = [text for owner, text in self._contexts if is_all or owner == hook_input.session_id]
        self._contexts = [one for one in self._contexts if one[1] not in texts]
        return AddContext("\n".join(texts)) if texts else None
