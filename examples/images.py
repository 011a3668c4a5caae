"""Images and documents: in the prompt, and as the result of a tool.

A prompt is a text or a list of texts, images and documents. A tool may return them too, so the
model can look at what it made.
"""

from __future__ import annotations

import asyncio
import struct
import zlib

from treadle import Agent, Document, Image, tool
from treadle.contracts import ModelRequest, ToolResultItem, UserItem
from treadle.models import Say, Scripted


def make_png(red: int, green: int, blue: int, side: int = 8) -> bytes:
    """A square of one colour."""
    pixels = (b"\0" + bytes((red, green, blue)) * side) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(pixels)), (b"IEND", b""))
    chunks = (struct.pack(">I", len(data)) + kind + data for kind, data in parts)
    sums = (struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(a + b for a, b in zip(chunks, sums, strict=True))


@tool(effect="pure")
async def draw(red: int, green: int, blue: int) -> tuple[str, Image]:
    """Draw a square, and look at it."""
    return "the square:", Image("image/png", make_png(red, green, blue))


def answer(request: ModelRequest) -> Say | str:
    """Stands for a model that can see: it says what it was shown."""
    item = request.transcript[-1]
    assert isinstance(item, (UserItem, ToolResultItem))
    shown = [
        f"{type(part).__name__} ({part.media_type}, {len(part.data)} bytes)"
        for part in item.content
        if isinstance(part, (Image, Document))
    ]
    print("the model is shown:", *shown)
    if isinstance(item, UserItem):
        return Say(calls=[("draw", {"red": 0, "green": 0, "blue": 255})])
    return "Your square is red, mine is blue; the order asks for blue."


async def main() -> None:
    red = Image("image/png", make_png(255, 0, 0))
    order = Document("text/plain", b"One blue square, please.", title="order.txt")
    agent = Agent(Scripted(answer), [draw])
    result = await agent.run(["Is this square what the order asks for?", red, order])
    print(result.output)


if __name__ == "__main__":
    asyncio.run(main())
