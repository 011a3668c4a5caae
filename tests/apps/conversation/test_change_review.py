"""Hunks of diffs: whatever the lines look like, dropping all of them gives the old text back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treadle.apps.conversation.commands.change_review import (
    ChangeReview,
    ReviewFile,
    _compare_contents,
    _drop_lines,
    _make_diff,
    _parse_git_file,
)
from treadle.apps.conversation.diff_rows import count_changes, parse_diff

LINES = st.sampled_from(
    ["", "a", "b", "-- sql", "++ c", "- one", "...", "@@ -1 +1 @@", "\\ No newline", "x\r", "\f"]
)
TEXTS = st.lists(LINES, max_size=40).map("\n".join)


@given(TEXTS, TEXTS)
def test_a_file_whose_hunks_are_dropped_is_as_before(old, new):
    file = ReviewFile("f.txt", "changed", _make_diff("f.txt", old.encode(), new.encode()))
    text = new
    for hunk in reversed(file.list_hunks()):
        dropped = _drop_lines(text, hunk)
        assert dropped is not None
        text = dropped
    assert text == old


def test_a_line_that_looks_like_the_head_of_a_file_is_a_line():
    diff = _make_diff("q.sql", b"-- old\nselect 1\n", b"++ new\nselect 1\n")
    rows = [(row.kind, row.text) for row in parse_diff(diff)]
    assert rows == [("hunk", ""), ("del", "-- old"), ("add", "++ new"), ("same", "select 1")]
    assert count_changes(diff) == (1, 1)


def test_lines_that_are_not_there_any_more_are_not_dropped():
    file = ReviewFile("f.txt", "changed", _make_diff("f.txt", b"a\n", b"b\n"))
    assert _drop_lines("c\n", file.list_hunks()[0]) is None
    assert _drop_lines("b\r\n", file.list_hunks()[0]) is None


RENAMED = "a/old.txt b/new.txt\nsimilarity index 100%\nrename from old.txt\nrename to new.txt\n"
EXECUTABLE = "a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"
PICTURE = "a/x.png b/x.png\nindex 1a..2b 100644\nBinary files a/x.png and b/x.png differ\n"


def test_a_file_without_changed_lines_says_whether_it_is_text():
    files = tuple(_parse_git_file(part) for part in (RENAMED, EXECUTABLE, PICTURE))
    files += (_compare_contents("y.png", "added", b"", b"\0"),)
    assert ChangeReview("git", files).format_text().split("\n") == [
        "R old.txt → new.txt (the same lines)",
        "M run.sh (the same lines)",
        "M x.png (no text)",
        "A y.png (no text)",
    ]
