"""The lines for the images that are attached to the prompt; each is decoded once, in a thread."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.text import Text

from treadle.apps.tui.render.palette import Palette
from treadle.core.errors import ConfigError
from treadle.core.extras import is_installed
from treadle.core.transcript.content import Image
from treadle.core.untrusted_files import read_prefix
from treadle.lib.files.media_size import image_size
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import format_bytes

MAX_PIXELS = 50_000_000  # of a picture that is decoded for a thumbnail
COLUMNS, ROWS = 12, 3  # at most; a row has two pixels


def render_thumbnail(name: str, data: bytes, palette: Palette, rows: int = ROWS) -> list[Text]:
    """The lines for an image, at most `rows`."""
    width, height = image_size(data)
    parts = [escape_invisible(name)]
    parts += [f"{width} × {height}"] if width and height else []
    label = Text(" · ".join([*parts, format_bytes(len(data))]), palette.faint, no_wrap=True)
    is_drawn = palette.name != "none" and 0 < width * height <= MAX_PIXELS
    picture = _draw(data, rows) if is_drawn else []
    if not picture:
        return [label]
    return [*(line.append(" ") for line in picture[:-1]), picture[-1].append(" ") + label]


def _draw(data: bytes, rows: int) -> list[Text]:
    """Half blocks: the upper pixel is the colour of the sign, the lower one the background."""
    if not is_installed("images"):
        return []
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                return []
            picture.draft("RGB", (COLUMNS * 8, rows * 16))
            small = picture.convert("RGB")
            small.thumbnail((COLUMNS, rows * 2))
    except Exception:  # noqa: BLE001 - a damaged picture has no thumbnail, whatever Pillow raises
        return []
    lines = []
    for y in range(0, small.height, 2):
        line = Text(no_wrap=True)
        for x in range(small.width):
            upper = _color(small.getpixel((x, y)))
            lower = _color(small.getpixel((x, y + 1))) if y + 1 < small.height else ""
            line.append("▀", f"{upper} on {lower}" if lower else upper)
        lines.append(line)
    return lines


def _color(pixel: object) -> str:
    red, green, blue = pixel if isinstance(pixel, tuple) else (0, 0, 0)
    return f"#{int(red):02x}{int(green):02x}{int(blue):02x}"


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
