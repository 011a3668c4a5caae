"""The screen of `/diff`: the changed files with their coloured diffs, and the hunks of one.

Drawn with lists (widgets/choices.py): the diff of the marked file or hunk is above them. What has
changed, and how a hunk is dropped, is commands/change_review.py.
"""

from __future__ import annotations

from functools import lru_cache

from rich.text import Text
from textual import events

from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.change_review import (
    SCOPES,
    ChangeReview,
    ReviewFile,
    build_review,
    drop_hunk,
    make_hunk_key,
)
from treadle.apps.tui.render import diffs
from treadle.apps.tui.screen import FullScreen
from treadle.apps.tui.widgets.choices import BodyRenderer, Choices
from treadle.core.errors import TreadleError
from treadle.lib.text.text import plural

FILES_HINT = "enter: hunks · tab: turn, session, git · pgup pgdn scroll · esc closes"
HUNKS_HINT = "enter: keep or drop · pgup pgdn scroll · esc: files"
NEXT_SCOPE = "tab"


class ReviewList(Choices):
    """Also posts Selected with NEXT_SCOPE."""

    def _handle_key(self, event: events.Key) -> bool:
        if event.key == "tab":
            self.post_message(self.Selected(NEXT_SCOPE))
            return True
        return super()._handle_key(event)


class ReviewView:
    """Shows a review until the user closes it. `kept` are the keys of the hunks that were looked
    at and kept: they keep their sign while the screen is open."""

    def __init__(self, screen: FullScreen) -> None:
        self._screen = screen
        self._kept: set[str] = set()

    async def show(self, scope_name: str) -> None:
        place, current = SCOPES.index(next(one for one in SCOPES if one == scope_name)), ""
        while True:
            try:
                review = await build_review(self._screen.session, SCOPES[place])
            except TreadleError as error:
                self._screen.show_hint(str(error))
                review = ChangeReview(SCOPES[place])
            chosen = await self._choose_file(review, current)
            if chosen is None:
                return
            if chosen == NEXT_SCOPE:
                place, current = (place + 1) % len(SCOPES), ""
                continue
            file = next((one for one in review.files if one.path == chosen), None)
            if file is not None:
                current = file.path
                await self._show_hunks(file)

    async def _choose_file(self, review: ChangeReview, current: str) -> str | None:
        options = [
            ChoiceOption(file.path, f"{file.sign} {file.title}", self._describe(file))
            for file in review.files
        ]
        bodies = {file.path: self._make_body(file.diff) for file in review.files}
        options = options or [ChoiceOption("", "no changes")]
        first = current if current in bodies else options[0].value
        palette = self._screen.palette
        title = f"{review.title}   {_name_scopes(review)}"
        widget = ReviewList(
            title, options, palette, bodies.get(first), hint=FILES_HINT, current=first
        )
        return await self._choose(widget, bodies)

    async def _show_hunks(self, file: ReviewFile) -> None:
        """The hunks of a file until the user goes back, or drops one: the others then move."""
        hunks = file.list_hunks()
        place = 0
        while hunks:
            bodies: dict[str, BodyRenderer] = {}
            options = []
            for number, rows in enumerate(hunks):
                text = "\n".join(_SIGNS[row.kind] + row.text for row in rows)
                first = next((row.new or row.old for row in rows), 0)
                added = sum(row.kind == "add" for row in rows)
                removed = sum(row.kind == "del" for row in rows)
                kept = "  kept" if make_hunk_key(file.path, rows) in self._kept else ""
                label = f"hunk {number + 1} of {len(hunks)}"
                detail = f"line {first}  +{added} −{removed}{kept}"
                options.append(ChoiceOption(str(number), label, detail))
                head = f"--- a/{file.path}\n+++ b/{file.path}\n"
                start_old = next((row.old for row in rows if row.old), 1)
                start_new = next((row.new for row in rows if row.new), 1)
                bodies[str(number)] = self._make_body(
                    f"{head}@@ -{start_old},{len(rows) - added} "
                    f"+{start_new},{len(rows) - removed} @@\n{text}"
                )
            widget = Choices(
                file.title,
                options,
                self._screen.palette,
                bodies[str(place)],
                hint=HUNKS_HINT,
                current=str(place),
            )
            chosen = await self._choose(widget, bodies)
            if chosen is None:
                return
            place = int(chosen)
            match await self._ask_about(file, place, bodies[chosen]):
                case "keep":
                    self._kept.add(make_hunk_key(file.path, hunks[place]))
                    place = min(place + 1, len(hunks) - 1)
                case "drop":
                    try:
                        note = await drop_hunk(self._screen.session, file, place)
                    except (TreadleError, OSError) as error:
                        note = str(error)
                    self._screen.show_message(note)
                    return

    async def _ask_about(self, file: ReviewFile, place: int, body: BodyRenderer) -> str | None:
        options = [
            ChoiceOption("keep", "Keep it", key="k"),
            ChoiceOption("drop", "Drop it: the lines go back to what they were", key="x"),
        ]
        title = f"{file.title}, hunk {place + 1}"
        return await self._screen.dialogs.show_choices(
            title, options, body=body, hint="esc: hunks", shows_enter=True
        )

    async def _choose(self, widget: Choices, bodies: dict[str, BodyRenderer]) -> str | None:
        def show(value: str) -> None:
            if value in bodies:
                widget.set_body(bodies[value])

        return await self._screen.dialogs.show_widget(widget, on_highlight=show)

    def _describe(self, file: ReviewFile) -> str:
        hunks = file.list_hunks()
        kept = sum(make_hunk_key(file.path, rows) in self._kept for rows in hunks)
        done = f"  {kept} of {plural(len(hunks), 'hunk')} kept" if kept else ""
        return f"{file.counts}{done}"

    def _make_body(self, diff: str) -> BodyRenderer:
        palette = self._screen.palette

        @lru_cache(maxsize=2)
        def body(width: int) -> list[Text]:
            return [*diffs.render_diff(diff, width, palette, highlights=True, wraps=True), Text()]

        return body


_SIGNS = {"add": "+", "del": "-", "same": " "}


def _name_scopes(review: ChangeReview) -> str:
    return "  ".join(f"[{one}]" if one == review.scope else one for one in SCOPES)
