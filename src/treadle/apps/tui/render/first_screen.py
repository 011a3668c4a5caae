"""Renders the first screen of a session; on a small terminal it leaves out lines, the least
important first."""

from __future__ import annotations

import time

from rich.text import Text

from treadle.apps.conversation.first_screen import FirstScreen
from treadle.apps.conversation.host import Host
from treadle.apps.conversation.modes import describe_mode
from treadle.apps.tui.render.markdown import styled_prefix
from treadle.apps.tui.render.palette import Palette
from treadle.core.contracts.model import ModelCard
from treadle.core.text import format_age, plural, shorten_home

_LABEL_WIDTH = 9


def render_first_screen(
    screen: FirstScreen, host: Host, size: tuple[int, int], palette: Palette
) -> list[Text]:
    """The lines, at most as many and as wide as the size says."""
    width, rows = size
    facts = [
        _render_fact("folder", shorten_home(host.folder), palette),
        _render_fact("trust", _describe_trust(screen), palette, is_warning=not screen.is_trusted),
        _render_fact("model", _describe_model(host.model), palette),
        _render_fact("mode", describe_mode(host.mode), palette),
        _render_sandbox(screen, host, palette),
    ]
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


def _render_fact(label: str, text: str, palette: Palette, *, is_warning: bool = False) -> Text:
    style = palette.warning if is_warning else palette.plain
    return styled_prefix(f"{label:{_LABEL_WIDTH}}", palette.faint).append(text, style)


def _describe_trust(screen: FirstScreen) -> str:
    files = ", ".join(screen.files)
    if screen.is_trusted:
        return f"trusted, reads {files}" if files else "trusted"
    return f"not trusted: {files} not used (/trust)" if files else "not trusted (/trust)"


def _describe_model(card: ModelCard) -> str:
    if card.input_price == 0 or card.input_price is None or card.output_price is None:
        return f"{card.name}, {'free' if card.input_price == 0 else 'price not known'}"
    prices = f"${card.input_price:g} in, ${card.output_price:g} out per million tokens"
    return f"{card.name}, {prices}"


def _render_sandbox(screen: FirstScreen, host: Host, palette: Palette) -> Text:
    if screen.sandbox == "off":
        text, is_warning = "off: commands can reach all that you can", True
    elif problem := host.sandbox_problem:
        text, is_warning = f"none: {problem}", True
    else:
        text, is_warning = "on: commands write only in this folder", False
    return _render_fact("sandbox", text, palette, is_warning=is_warning)


def _render_sessions(screen: FirstScreen, palette: Palette) -> list[Text]:
    if not screen.sessions:
        return []
    now = time.time()
    lines = [Text("continue (alt+1, or 1 and enter)", palette.faint)]
    for number, one in enumerate(screen.sessions, 1):
        line = styled_prefix(f"  {number} ", palette.accent)
        line.append(" ".join(one.title.split()) or "(no messages)")
        age, turns = format_age(now - one.updated), plural(one.turns, "turn")
        lines.append(line.append(f"  {age}, {turns}", palette.faint))
    return lines


def _render_ideas(screen: FirstScreen, palette: Palette) -> list[Text]:
    heading = Text("try", palette.faint)
    return [heading, *(styled_prefix("  › ", palette.accent).append(i) for i in screen.ideas)]
