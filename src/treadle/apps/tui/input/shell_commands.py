"""Commands of the person's own (`!ls`): run, shown, and told to the model with the next message."""

from __future__ import annotations

import asyncio

from treadle.apps.tui.conversation import Conversation
from treadle.apps.tui.host import Host
from treadle.apps.tui.state.blocks import ShellBlock
from treadle.core.errors import TreadleError
from treadle.core.transcript.content import Text
from treadle.core.transcript.items import UserItem

MAX_SHOWN_CHARS = 20_000
MAX_SENT_CHARS = 8_000


class ShellCommands:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._running: set[asyncio.Task[None]] = set()
        self.recent_outputs: list[str] = []  # since the last message

    def start(self, conversation: Conversation, command: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._run(conversation, command))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def stop(self) -> bool:
        """Whether there was something to stop."""
        running = list(self._running)
        for task in running:
            task.cancel()
        return bool(running)

    def attach_outputs(self, item: UserItem) -> UserItem:
        """The message, and what was run before it."""
        ran, self.recent_outputs = self.recent_outputs, []
        return UserItem((*item.content, *(Text(text) for text in ran)), item.steered)

    async def _run(self, conversation: Conversation, command: str) -> None:
        parts: list[str] = []
        place = conversation.show_block(ShellBlock(command))

        def show(output: str, code: int | None = None, *, is_over: bool = False) -> None:
            conversation.replace_block(place, ShellBlock(command, output, code, is_over))

        def heard(text: str) -> None:
            parts.append(text)
            show("".join(parts)[-MAX_SHOWN_CHARS:])

        try:
            done = await self._host.run_shell_command(command, heard)
        except TreadleError as error:
            show(str(error), is_over=True)
        except asyncio.CancelledError:
            show("".join(parts)[-MAX_SHOWN_CHARS:] + "\nstopped", is_over=True)
            raise
        else:
            show(done.output, done.exit_code, is_over=True)
            said = f"I ran `{command}` myself; exit code {done.exit_code}, output:\n"
            self.recent_outputs.append(said + done.output[-MAX_SENT_CHARS:])
