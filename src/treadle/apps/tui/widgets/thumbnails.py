"""The lines for the images that are attached to the prompt; each is decoded once, in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.text import Text

from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.render.thumbnail import render_thumbnail
from treadle.core.errors import ConfigError
from treadle.core.transcript.content import Image
from treadle.core.untrusted_files import read_prefix

MAX_IMAGES = 4
MAX_IMAGE_BYTES = 32 << 20


class Thumbnails:
    """`on_change` is called when `lines` have changed."""

    def __init__(self, folder: Path, on_change: Callable[[], None]) -> None:
        self._folder = folder
        self._on_change = on_change
        self._done: dict[int, tuple[object, list[Text]]] = {}  # by the number of the placeholder
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def lines(self) -> list[Text]:
        return [line.copy() for _, lines in self._done.values() for line in lines]

    def update(self, contents: Mapping[int, object], palette: Palette) -> None:
        """The prompt has these attachments now."""
        images = {
            number: content
            for number, content in list(contents.items())[:MAX_IMAGES]
            if isinstance(content, Image | Path)
        }
        for number in [
            one for one, (content, _) in self._done.items() if images.get(one) is not content
        ]:
            del self._done[number]
        for number, content in images.items():
            if number not in self._done:
                self._done[number] = content, []
                task = asyncio.create_task(self._render(number, content, palette))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _render(self, number: int, content: Image | Path, palette: Palette) -> None:
        lines = await asyncio.to_thread(self._describe, content, palette)
        if number in self._done and self._done[number][0] is content:
            self._done[number] = content, lines
            self._on_change()

    def _describe(self, content: Image | Path, palette: Palette) -> list[Text]:
        if isinstance(content, Image):
            return render_thumbnail("image of the clipboard", content.data, palette)
        try:
            data = read_prefix(self._folder / content, MAX_IMAGE_BYTES, within=None)
        except (ConfigError, OSError) as error:
            return [Text(f"{content.name}: {error}", palette.warning)]
        return render_thumbnail(content.name, data, palette)
