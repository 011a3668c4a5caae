"""The shared cases: no wrong allow in any mode without a sandbox, and few needless questions."""

import pytest

from tests.permissions.shared_cases import MODES, count, load_cases
from treadle.permissions.modes import PermissionMode

MAX_WRONG = {"plan": 1, "ask": 6, "accept-edits": 6, "auto": 6}
MAX_ASKED_SHARE = {"ask": 0.06, "accept-edits": 0.07, "auto": 0.07}


@pytest.mark.parametrize("mode", MODES)
def test_the_shared_cases_get_no_wrong_allow_and_few_needless_questions(mode: PermissionMode):
    tally = count(load_cases(), mode)
    assert len(tally.wrong_allows) <= MAX_WRONG[mode], tally.wrong_allows
    assert tally.asked_share <= MAX_ASKED_SHARE.get(mode, 0), tally.needless_asks
    assert tally.harmless > 180
