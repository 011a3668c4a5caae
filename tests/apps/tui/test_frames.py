"""When a frame is drawn, and how often the screen is laid out for it."""

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from rich.text import Text
from textual.app import App, ComposeResult
from textual.geometry import Size

from tests.apps.tui.harness import running_app, write_file
from tests.patience import until
from treadle.apps.conversation.completion import Completion, find_completions
from treadle.apps.conversation.state.blocks import NoteBlock, ViewBlock
from treadle.apps.conversation.state.persistent_list import PersistentList
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.tui.render.palette import select_palette
from treadle.apps.tui.widgets import prompt
from treadle.apps.tui.widgets.lines import LinesWidget, UnscrolledColumn
from treadle.apps.tui.widgets.transcript import TranscriptWidget
from treadle.apps.tui.widgets.viewport import Viewport


async def test_what_a_key_changes_is_drawn_without_the_clock_of_frames(monkeypatch):
    async with running_app(monkeypatch) as on:
        drawn: list[str] = []
        await on.drawn()
        monkeypatch.setattr(on.app.screen._update_timer, "resume", lambda: None)
        monkeypatch.setattr(on.app, "post_display_hook", lambda: drawn.append(on.app.prompt.text))
        for length, letter in enumerate("word", 1):
            on.app.simulate_key(letter)
            await on.until(partial(drawn.__contains__, "word"[:length]), "the letter is drawn")


async def test_files_are_never_matched_in_the_thread_that_draws(monkeypatch):
    write_file("alphabet.py")
    threads: list[threading.Thread] = []

    def find(line: str, files: Sequence[str], *rest: Any) -> list[Completion]:
        if files:
            threads.append(threading.current_thread())
        return find_completions(line, files, *rest)

    monkeypatch.setattr(prompt, "find_completions", find)
    async with running_app(monkeypatch) as on:
        await on.until(lambda: "alphabet.py" in on.app.prompt.project_files, "the list of files")
        for key in ("@", "a", "l", "tab"):  # the key comes before the list
            on.app.simulate_key(key)
        await on.until(lambda: on.app.prompt.text == "@alphabet.py ", "the completion")
    assert threads
    assert threading.main_thread() not in threads


class TwoParts(App[None]):
    """What is above a list gets smaller when the list grows."""

    def compose(self) -> ComposeResult:
        yield TranscriptWidget(select_palette("dark"))
        with UnscrolledColumn():
            yield LinesWidget()

    CSS = "UnscrolledColumn { height: auto; }"


async def test_a_list_that_grows_takes_one_layout():
    app = TwoParts()
    heights: list[int] = []
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        transcript, lines = app.query_one(TranscriptWidget), app.query_one(LinesWidget)
        app.screen.screen_layout_refresh_signal.subscribe(
            app, lambda _: heights.append(transcript.size.height), immediate=True
        )
        for rows in (3, 5, 2):
            lines.set_lines([Text("a line")] * rows)
            await until(partial(heights.__contains__, 12 - rows), "the layout")
            await pilot.pause()
        assert heights == [9, 7, 10]


def test_other_rows_are_visible_at_another_height_and_nothing_is_rendered_again():
    size = Size(40, 6)
    viewport = Viewport(select_palette("dark"), lambda: size, lambda: None)
    blocks: PersistentList[ViewBlock] = PersistentList()
    for number in range(20):
        blocks = blocks.append(NoteBlock(f"note {number}"))
    viewport.reset(ViewState(blocks=blocks))
    tall, rendered = viewport.list_rows(), viewport.render_count
    size = Size(40, 3)
    assert viewport.list_rows() == tall[3:]
    assert viewport.render_count == rendered
    size = Size(30, 3)
    assert viewport.list_rows() == tall[3:]
    assert viewport.render_count > rendered
