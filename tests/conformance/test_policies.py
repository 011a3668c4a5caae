from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from treadle.contracts import BasePolicy, Deny, PermissionRequest, Verdict
from treadle.permissions import AllowAll, RulePolicy
from treadle.permissions.modes import PermissionMode
from treadle.permissions.policy import build_policy_context
from treadle.testing import check_policy


@pytest.mark.parametrize("interactive", [True, False])
@pytest.mark.parametrize("mode", get_args(PermissionMode))
async def test_the_rule_policy_keeps_the_promises_of_a_policy(
    own_place: Path, mode: PermissionMode, interactive: bool
):
    context = build_policy_context(own_place / "cwd")
    await check_policy(lambda: RulePolicy(context, mode=mode, interactive=interactive))


async def test_a_policy_for_everything_keeps_the_promises_of_a_policy():
    class Nothing(BasePolicy):
        async def decide(self, request: PermissionRequest) -> Verdict:
            return Deny("nothing is allowed")

    await check_policy(Nothing)
    await check_policy(AllowAll)
