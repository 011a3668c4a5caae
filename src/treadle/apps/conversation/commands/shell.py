"""Commands that the user runs with `!`: shown, and sent to the model with the next message."""

from __future__ import annotations

import asyncio

from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.state.blocks import ShellBlock
from treadle.core.errors import TreadleError
from treadle.core.transcript import Text, UserItem

MAX_SHOWN_CHARS = 20_000
MAX_SENT_CHARS = 8_000
MAX_SENT_OUTPUTS = 20  # with one message; the newest


class ShellCommands:
    def __init__(self, session: HostedSession) -> None:
        self._session = session
        self._running: set[asyncio.Task[None]] = set()
        self.recent_outputs: list[str] = []  # since the last message, of one session
        self._session_id = ""  # of that session

    def start(self, command: str) -> asyncio.Task[None]:
        conversation = self._session.require_conversation()
        task = asyncio.get_running_loop().create_task(self._run(conversation, command))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    def stop(self) -> bool:
        """Stop all; False if none runs."""
        running = list(self._running)
        for task in running:
            task.cancel()
        return bool(running)

    def attach_outputs(self, item: UserItem) -> UserItem:
        """The message with the outputs of the commands since the last one."""
        self._keep_only(self._session.driver.session_id)
        outputs, self.recent_outputs = self.recent_outputs, []
        return UserItem((*item.content, *(Text(text) for text in outputs)), item.steered)

    def _keep_only(self, session_id: str) -> None:
        if session_id != self._session_id:
            self.recent_outputs.clear()
            self._session_id = session_id

    async def _run(self, conversation: Conversation, command: str) -> None:
        shown = ""  # the end of the output
        index = conversation.show_block(ShellBlock(command))

        def show(output: str, code: int | None = None, *, is_finished: bool = False) -> None:
            conversation.replace_block(index, ShellBlock(command, output, code, is_finished))

        def on_output(text: str) -> None:
            nonlocal shown
            shown = (shown + text)[-MAX_SHOWN_CHARS:]
            show(shown)

        try:
            result = await self._session.run_command(command, on_output=on_output, sandboxed=False)
        except (TreadleError, OSError) as error:
            show(str(error), is_finished=True)
        except asyncio.CancelledError:
            show(f"{shown}\nstopped", is_finished=True)
            raise
        else:
            killed = f"\nkilled by {result.signal}" if result.signal else ""
            show(result.output[-MAX_SHOWN_CHARS:] + killed, result.exit_code, is_finished=True)
            ended = f"killed by {result.signal}" if killed else f"exit code {result.exit_code}"
            heading = f"I ran `{command}` myself; {ended}, output:\n"
            current = self._session.conversation
            session_id = conversation.driver.session_id
            if current is None or current.driver.session_id != session_id:
                return  # no message of its session will follow
            self._keep_only(session_id)
            self.recent_outputs.append(heading + result.output[-MAX_SENT_CHARS:])
            del self.recent_outputs[:-MAX_SENT_OUTPUTS]
