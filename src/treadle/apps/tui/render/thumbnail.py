"""Draws an attached image as a line: a small picture of half blocks, its name, pixels and size.

Without Pillow (the extra `images`) there is no picture. Decoding takes a while: in a thread.
"""

from __future__ import annotations

import io

from rich.text import Text

from treadle.apps.tui.render.palette import Palette
from treadle.core.extras import is_installed
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
