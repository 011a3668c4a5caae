"""strands-agents over Anthropic Messages; no trimming of the history. `files` keeps the session."""

import os
from typing import Any

os.environ.setdefault("OTEL_SDK_DISABLED", "true")

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.anthropic import AnthropicModel
from strands.session import FileSessionManager


class Engine:
    def __init__(self, task: Any) -> None:
        self._task = task
        self._model = AnthropicModel(
            client_args={"base_url": task.url, "api_key": "k", "timeout": 600},
            model_id="claude-sonnet-5-5",
            max_tokens=1000,
        )
        self._tools = [tool(task.make_tool())]

    async def run(self) -> int:
        seen = 0
        kept: Any = {}
        if self._task.variant == "files":
            folder = str(self._task.make_folder())
            kept = {"session_manager": FileSessionManager("one", storage_dir=folder)}
        agent = Agent(
            model=self._model,
            tools=self._tools,
            system_prompt=self._task.instructions,
            callback_handler=None,
            conversation_manager=NullConversationManager(),
            **kept,
        )
        async for event in agent.stream_async("go"):
            seen += "data" in event
        return seen
