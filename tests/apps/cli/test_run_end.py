from __future__ import annotations

from pathlib import Path

from treadle.apps.cli.run_end import RunEnd, explain_exit, report_turn
from treadle.apps.console import exit_codes
from treadle.apps.settings.load import load_settings
from treadle.core.events import TurnResult
from treadle.core.transcript.items import Metadata


def explain_refusal(metadata: Metadata) -> str:
    settings = load_settings(Path.cwd(), environ={})
    turn = TurnResult("t", "refused", metadata=metadata)
    report = report_turn(turn, None, "", RunEnd(settings))
    assert report.exit_code == exit_codes.REFUSED
    return explain_exit(report, (), None, settings, {})


def test_a_turn_that_the_engine_ended_is_not_called_a_refusal_of_the_model() -> None:
    assert explain_refusal({}) == "the model refused to answer"
    assert explain_refusal({"detail": "nothing was changed"}) == "nothing was changed"
