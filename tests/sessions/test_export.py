"""What an exported session says about entries that are no items."""

from __future__ import annotations

from treadle.core.transcript.entries import ViewRewritten
from treadle.core.transcript.items import NoticeItem, SummaryItem
from treadle.sessions.export import describe_entry


def test_a_notice_that_was_added_is_shown_and_is_no_cut():
    notice = NoticeItem("The permission mode is now plan.", "mode")
    assert describe_entry(ViewRewritten("reminders", 3, 3, (notice,))) == notice.text
    cut = ViewRewritten("compaction", 0, 4, (SummaryItem("Goal: go on.", 4),))
    assert describe_entry(cut) == "compaction: items 0 to 4 left the view"
