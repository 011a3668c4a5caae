"""The recorded session of the README: how it is drawn, what it shows, and that it can be made."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.recording import FILE, PROMPT, REPLIES, record
from scripts.terminal_svg import CellStyle, Frame, Span, draw_animation, parse_row
from tests.apps.tui.tmux import needs_tmux
from tests.repository.named_tests import ROOT


def test_a_row_of_a_terminal_becomes_parts_with_their_style():
    spans, style = parse_row("a\x1b[1;38;2;255;0;16mred\x1b[0;7m x\x1b[48;5;232m")
    red = CellStyle(color="#ff0010", bold=True)
    assert spans == [
        Span(0, "a", CellStyle()),
        Span(1, "red", red),
        Span(4, " x", CellStyle(reverse=True)),
    ]
    assert style == CellStyle(reverse=True, background="#080808")


def test_a_row_that_stays_is_drawn_once_and_the_last_screen_is_seen_without_animation():
    svg = draw_animation([Frame("same\none", 1), Frame("same\ntwo", 3)], 10, 2, "a < b")
    ElementTree.fromstring(svg)
    assert svg.count(">same</text>") == 1
    hidden = re.findall(r'visibility="hidden">.*?>(\w+)</text>', svg)
    assert hidden == ["one"]
    assert "25.00%{visibility:hidden}" in svg


def test_the_recording_shows_the_story_and_no_path_of_the_machine_that_made_it():
    svg = FILE.read_text()
    texts = "".join(ElementTree.fromstring(svg).itertext())
    assert PROMPT in texts
    assert "Allow edit" in texts
    assert "restored cart.py" in texts
    assert "/tmp/" not in svg
    assert svg.count("http") == svg.count('xmlns="http')
    assert len(svg) < 100_000


def test_the_readme_shows_it_on_its_first_screen():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert any("](docs/images/session.svg)" in line for line in lines[:14])


@needs_tmux
@pytest.mark.slow
async def test_the_recording_can_be_made_by_the_real_program(own_place: Path):
    frames = await record(own_place)
    assert len(frames) > 10
    assert str(REPLIES[-1].text).rpartition("`")[2] in frames[-1].screen
