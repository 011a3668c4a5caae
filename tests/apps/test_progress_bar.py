from __future__ import annotations

import io

from treadle.apps.console.embedded_setup import ProgressBar
from treadle.models.embedded import DownloadProgress


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_on_a_terminal_the_bar_redraws_itself_with_pace_and_time_left(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    screen, clock = Screen(), Clock()
    bar = ProgressBar(screen, clock)
    bar.update(DownloadProgress("downloading", 0, 1_000_000_000))
    clock.now = 10.0
    bar.update(DownloadProgress("downloading", 250_000_000, 1_000_000_000))
    bar.finish()
    text = screen.getvalue()
    assert text.count("\n") == 1
    last = text.rstrip("\n").rsplit("\r", 1)[1]
    assert last.startswith("downloading [#####..............]  25%  250.0 MB of 1.0 GB")
    assert max(map(len, text.split("\r"))) <= 80
    assert last.rstrip().endswith("25.0 MB/s, 30s left")


def test_a_shorter_line_leaves_nothing_of_a_longer_one():
    screen, clock = Screen(), Clock()
    bar = ProgressBar(screen, clock)
    for done in (0, 999_000_000, 1_000_000_000):
        clock.now += 100
        bar.update(DownloadProgress("downloading", done, 1_000_000_000))
    lines = screen.getvalue().split("\r")
    assert len(lines[-1]) >= len(lines[-2].rstrip())


def test_a_resumed_fetch_counts_only_what_is_new_for_its_pace():
    screen, clock = Screen(), Clock()
    bar = ProgressBar(screen, clock)
    bar.update(DownloadProgress("downloading", 500_000_000, 1_000_000_000))
    clock.now = 5.0
    bar.update(DownloadProgress("downloading", 600_000_000, 1_000_000_000))
    assert "20.0 MB/s, 20s left" in screen.getvalue()


def test_elsewhere_there_is_a_line_for_each_tenth():
    out = io.StringIO()
    bar = ProgressBar(out, Clock())
    for done in range(1001):
        bar.update(DownloadProgress("downloading", done, 1000))
    bar.finish()
    lines = out.getvalue().splitlines()
    assert len(lines) == 11
    assert "100%" in lines[-1]
    assert "\r" not in out.getvalue()


def test_checking_begins_a_bar_of_its_own():
    screen, clock = Screen(), Clock()
    bar = ProgressBar(screen, clock)
    bar.update(DownloadProgress("downloading", 1000, 1000))
    clock.now = 100.0
    bar.update(DownloadProgress("checking", 0, 1000))
    bar.update(DownloadProgress("done", 1000, 1000))
    assert screen.getvalue().rsplit("\r", 1)[1].startswith("checking [....")
    assert "/s" not in screen.getvalue()
