"""The timeline of the inspect page."""

from treadle.apps.pages.inspect import render_marks
from treadle.apps.pages.timeline import TimelineStep


def test_a_message_that_was_sent_meanwhile_begins_no_turn():
    steps = [
        TimelineStep(1, "message", 1, 0.0, 1),
        TimelineStep(2, "request", 2, 1.0, 1, 1),
        TimelineStep(3, "message", 3, 2.0, 1, 1),
        TimelineStep(4, "request", 4, 3.0, 1, 2),
        TimelineStep(5, "message", 5, 4.0, 2, 2),
    ]
    marks = render_marks(steps, 1)
    assert marks.count("Turn 1") == 1
    assert marks.count("Turn 2") == 1
