"""Files that tabs have uploaded and no message has taken yet."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from treadle.apps.conversation.attachments import MAX_FILE_BYTES, make_attachment
from treadle.core.errors import ConfigError
from treadle.core.transcript.content import UserContent

MAX_UPLOADS = 50
MAX_BYTES = 256 << 20  # of all of them; the oldest are forgotten


class Uploads:
    def __init__(self) -> None:
        self._contents: OrderedDict[str, tuple[UserContent, int]] = OrderedDict()

    async def receive(self, name: str, chunks: AsyncIterator[bytes]) -> str:
        """Read a file, at most as much as a message may have; its id. More is read and dropped:
        a browser that still sends would not see the answer."""
        data, dropped = bytearray(), 0
        async for chunk in chunks:
            if len(data) <= MAX_FILE_BYTES:
                data += chunk
                continue
            dropped += len(chunk)
            if dropped > MAX_BYTES:
                break
        content = make_attachment(name, bytes(data))
        upload = secrets.token_hex(8)
        self._contents[upload] = content, len(data)
        while len(self._contents) > MAX_UPLOADS or self._count_bytes() > MAX_BYTES:
            self._contents.popitem(last=False)
        return upload

    def take(self, uploads: Sequence[str]) -> list[UserContent]:
        """The contents for a message. ConfigError if one is missing: then none is taken."""
        if any(one not in self._contents for one in uploads):
            raise ConfigError("an attachment was not uploaded completely; attach it again")
        return [self._contents.pop(one)[0] for one in uploads]

    def _count_bytes(self) -> int:
        return sum(size for _, size in self._contents.values())
