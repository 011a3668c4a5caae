"""Renders the first screen of a session; on a small terminal it leaves out lines, the least
important first."""

from __future__ import annotations

from rich.text import Text

from treadle.apps.conversation.first_screen import (
    Fact,
    FirstScreen,
    describe_session,
    list_facts,
)
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.tui.render.markdown import styled_prefix
from treadle.apps.tui.render.palette import Palette

_LABEL_WIDTH = 9


def render_first_screen(
    screen: FirstScreen, session: HostedSession, size: tuple[int, int], palette: Palette
) -> list[Text]:
    """The lines, at most as many and as wide as the size says."""
    width, rows = size
    facts = [_render_fact(fact, palette) for fact in list_facts(screen, session)]
    groups = [facts, _render_sessions(screen, palette), _render_ideas(screen, palette)]
    # A group is shown whole or not at all; the facts as far as they fit.
    while len(groups) > 1 and _count_rows(groups) > rows:
        groups.pop()
    lines: list[Text] = []
    for group in groups:
        lines += [Text(), *group] if lines and group else group
    for line in lines:
        line.truncate(max(width, 1), overflow="ellipsis")
    return [*lines[:rows], Text()] if rows > 0 else []


def _count_rows(groups: list[list[Text]]) -> int:
    return sum(len(group) + 1 for group in groups if group) - 1


def _render_fact(fact: Fact, palette: Palette) -> Text:
    style = palette.warning if fact.is_warning else palette.plain
    return styled_prefix(f"{fact.label:{_LABEL_WIDTH}}", palette.faint).append(fact.text, style)


def _render_sessions(screen: FirstScreen, palette: Palette) -> list[Text]:
    if not screen.sessions:
        return []
    lines = [Text("continue (alt+1, or 1 and enter)", palette.faint)]
    for number, one in enumerate(screen.sessions, 1):
        line = styled_prefix(f"  {number} ", palette.accent)
        title, details = describe_session(one)
        lines.append(line.append(title).append(f"  {details}", palette.faint))
    return lines


def _render_ideas(screen: FirstScreen, palette: Palette) -> list[Text]:
    heading = Text("try", palette.faint)
    return [heading, *(styled_prefix("  › ", palette.accent).append(i) for i in screen.ideas)]
