"""A model of your own: it repeats what the user said, a word at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from treadle import Agent
from treadle.contracts import (
    AssistantItem,
    BadRequest,
    Model,
    ModelCard,
    ModelEvent,
    ModelRequest,
    ModelTextDelta,
    Reply,
    Text,
    Usage,
    UserItem,
)


class Echo:
    name = "example/echo"
    card = ModelCard(name, window=8_000, max_output=1_000, input_price=0.0, output_price=0.0)
    fallback: Model | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        said = [item.text for item in request.transcript if isinstance(item, UserItem)]
        if not said:
            raise BadRequest("there is no message to repeat", provider="example")
        words = said[-1].split()
        sent = words[: request.options.max_tokens or self.card.max_output]
        for number, word in enumerate(sent):
            await asyncio.sleep(0)  # a cancellation arrives here; a provider's stream awaits anyway
            yield ModelTextDelta(word if number == 0 else f" {word}")
        usage = Usage(input=len(words), output=len(sent), requests=1)
        item = AssistantItem(
            (Text(" ".join(sent)),),
            "end_turn" if len(sent) == len(words) else "max_tokens",
            self.name,
            usage,
        )
        yield Reply(item)  # exactly one, and the last event

    async def aclose(self) -> None:
        return None  # close your connections here


async def main() -> None:
    result = await Agent(Echo()).run("Hello, is there an echo?")
    print(result.text, result.usage)


if __name__ == "__main__":
    asyncio.run(main())
