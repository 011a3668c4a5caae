"""Inspect reads the log of a session once, and again when it has grown."""

from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.apps.web import inspection
from treadle.apps.web.inspection import Inspections, StepRequest
from treadle.core.transcript import AssistantItem, Text, UserItem
from treadle.core.transcript.entries import ItemAdded, TurnBegan
from treadle.sessions import Library


async def test_another_step_does_not_read_the_log_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    journal = Library().create(tmp_path)
    journal.append(TurnBegan("turn-1"))
    journal.append(ItemAdded(UserItem((Text("question"),))))
    journal.append(ItemAdded(AssistantItem((Text("first answer"),), model="m")))
    await journal.flush()
    reads: list[str] = []
    library = Library()

    def count(owner: object, name: str) -> None:
        read: Callable[..., object] = getattr(owner, name)

        def counted(*given: object, **more: object) -> object:
            reads.append(name)
            return read(*given, **more)

        monkeypatch.setattr(owner, name, counted)

    count(inspection, "read_timeline")
    count(inspection, "read_state")
    count(library, "get_summary")
    inspections = Inspections(library)
    inspections.render_page(journal.session_id, StepRequest())
    assert sorted(reads) == ["get_summary", "read_state", "read_timeline"]
    reads.clear()
    assert "question" in inspections.render_step(journal.session_id, StepRequest(step=2)).sheet
    assert reads == []
    journal.append(ItemAdded(AssistantItem((Text("second answer"),), model="m")))
    await journal.flush()
    assert inspections.render_step(journal.session_id, StepRequest()).step == 3
    assert sorted(reads) == ["read_state", "read_timeline"]
    await journal.aclose()
