"""The panel above the prompt: the list of keys, the search in earlier messages, or small images.

Draws only; prompt_screen.py, which uses it, has the handlers.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.text import Text

from treadle.apps.tui.render.markdown import styled_prefix
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.screen import FullScreen
from treadle.apps.tui.widgets.lines import LinesWidget
from treadle.core.errors import ConfigError
from treadle.core.extras import is_installed
from treadle.core.transcript.content import Image
from treadle.core.untrusted_files import read_prefix
from treadle.lib.files.media_size import image_size
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import format_bytes

KEY_COLUMN = 10
RESERVED_ROWS = 6  # of the screen, that the list of keys leaves free


class PromptPanel:
    def __init__(self, screen: FullScreen) -> None:
        self._screen = screen
        self._thumbnails = Thumbnails(screen.session.folder, self.draw)
        self.are_keys_shown = False

    def open_keys(self) -> bool:
        """Whether they are shown: not while a dialog is open."""
        if not self._screen.dialogs.is_open:
            self.show_keys(True)
        return self.are_keys_shown

    def show_keys(self, is_shown: bool) -> None:
        self.are_keys_shown = is_shown
        self.draw()

    def update_images(self) -> None:
        """The text of the prompt has changed."""
        contents = self._screen.attachments.find_contents(self._screen.prompt.text)
        self._thumbnails.update(contents, self._screen.palette)
        self.draw()

    def draw(self) -> None:
        if not self._screen.screen_stack:  # an image was decoded too late
            return
        if self.are_keys_shown:
            lines = self._render_keys()
        elif self._screen.prompt.search is not None:
            lines = [self._render_search()]
        else:
            lines = self._thumbnails.lines[: max(self._screen.size.height // 4, 1)]
        for line in lines:
            line.truncate(max(self._screen.size.width, 1), overflow="ellipsis")
        panel = self._screen.query_one("#prompt-panel", LinesWidget)
        if lines or panel.lines:
            panel.set_lines(lines)

    def _render_keys(self) -> list[Text]:
        keys = self._screen.key_descriptions
        room = max(self._screen.size.height - RESERVED_ROWS, 2)
        shown = keys if len(keys) < room else keys[: room - 1]
        lines = [
            styled_prefix(f"{key:{KEY_COLUMN}} ", self._screen.palette.accent).append(description)
            for key, description in shown
        ]
        end = "any key closes this" if shown is keys else "/help shows all keys"
        return [*lines, Text(end, self._screen.palette.faint)]

    def _render_search(self) -> Text:
        search = self._screen.prompt.search
        assert search is not None, "the caller has checked it"
        line = styled_prefix("search earlier messages: ", self._screen.palette.accent)
        line.append(search.query[-200:])
        if search.is_failed:
            line.append("  no older message has it" if search.match else "  no message has it")
        hint = self._screen.key_map.replace("ctrl+r older · enter takes it · esc cancels")
        return line.append(f"  {hint}", self._screen.palette.faint)


MAX_PIXELS = 50_000_000  # of a picture that is decoded for a thumbnail
COLUMNS, ROWS = 12, 3  # at most; a row has two pixels


def render_thumbnail(name: str, data: bytes, palette: Palette) -> list[Text]:
    """The lines for an image, at most `ROWS`."""
    width, height = image_size(data)
    parts = [escape_invisible(name)]
    parts += [f"{width} × {height}"] if width and height else []
    label = Text(" · ".join([*parts, format_bytes(len(data))]), palette.faint, no_wrap=True)
    is_drawn = palette.name != "none" and 0 < width * height <= MAX_PIXELS
    picture = _draw(data) if is_drawn else []
    if not picture:
        return [label]
    return [*(line.append(" ") for line in picture[:-1]), picture[-1].append(" ") + label]


def _draw(data: bytes) -> list[Text]:
    """Half blocks: the upper pixel is the colour of the sign, the lower one the background."""
    if not is_installed("images"):
        return []
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                return []
            picture.draft("RGB", (COLUMNS * 8, ROWS * 16))
            small = picture.convert("RGB")
            small.thumbnail((COLUMNS, ROWS * 2))
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
