# ruff: noqa: ASYNC240 - real files
"""The judge of auto mode: it may turn an allow into a question, and nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import treadle
from treadle.apps.assembly import judge as judge_module
from treadle.apps.assembly.assemble import build_agent
from treadle.apps.assembly.parts import SessionOptions
from treadle.apps.cli.commands.permissions import run
from treadle.apps.console.permission_history import describe_coverage
from treadle.apps.settings.settings import Settings
from treadle.core.steps import Approval, Denial, PendingApproval
from treadle.core.transcript.items import ToolResultItem
from treadle.models import Say, Scripted

WRITE = Say(calls=[("write", {"path": "a.txt", "content": "x"})])
NO = json.dumps({"ok": False, "reason": "the user did not ask for a file"})
YES = json.dumps({"ok": True})


async def run_calls(*script: Any, **options: Any) -> tuple[list[str], list[str], Scripted]:
    """The results, the questions, and the model, which is the judge, too."""
    asked: list[str] = []

    async def approve(request: PendingApproval) -> Denial:
        asked.append(request.reason)
        assert not request.rules, "no rule would change what the judge says"
        return Denial("not now")

    model = Scripted([*script, "done"])
    given: dict[str, Any] = {"permission_mode": "auto", "sandbox": "off", **options}
    settings = {"judge": "small"}
    async with treadle.coding_agent(
        ".", model=model, approve=approve, settings=settings, **given
    ) as agent:
        result = await agent.run("say hello")
    texts = [item.text for item in result.transcript if isinstance(item, ToolResultItem)]
    return texts, asked, model


async def test_an_objection_becomes_a_question():
    results, asked, model = await run_calls(WRITE, NO)
    assert asked == ["the judge: the user did not ask for a file"]
    assert "not now" in results[0]
    assert [request.purpose for request in model.requests] == ["turn", "judge", "turn"]
    shown = model.requests[1].transcript[-1].text
    assert '["say hello"]' in shown
    assert '"file_path": "a.txt"' in shown


async def test_without_an_objection_the_call_runs():
    results, asked, _ = await run_calls(WRITE, YES)
    assert not asked
    assert Path("a.txt").read_text() == "x"
    assert len(results) == 1


@pytest.mark.parametrize(
    ("call", "options"),
    [
        (WRITE, {"permission_mode": "accept-edits"}),
        (WRITE, {"allow": ["Edit(a.txt)"]}),
        (Say(calls=[("bash", {"command": "ls"})]), {}),
    ],
)
async def test_other_modes_rules_of_the_user_and_reading_are_not_judged(
    call: Say, options: dict[str, Any]
):
    _, asked, model = await run_calls(call, **options)
    assert not asked
    assert [request.purpose for request in model.requests] == ["turn", "turn"]


async def test_it_never_allows_what_the_policy_does_not():
    denied = Say(calls=[("bash", {"command": "rm -rf /srv/x"})])
    _, asked, model = await run_calls(denied, YES, deny=["Bash(rm:*)"])
    assert "judge" not in [request.purpose for request in model.requests]
    assert not asked


async def test_a_judge_that_fails_asks(monkeypatch: pytest.MonkeyPatch):
    _, asked, _ = await run_calls(WRITE, "no JSON at all", "again none", "and none")
    assert len(asked) == 1
    assert asked[0].startswith("the judge: it could not answer")
    monkeypatch.setattr(judge_module, "MAX_CALL_CHARS", 50)
    _, asked, _ = await run_calls(WRITE)
    assert asked == ["the judge: the call is too long to be judged"]


async def test_verdicts_are_beside_the_log_and_past_decisions_test_a_judge(
    own_place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    calls = [("bash", {"command": f"./go.sh {name}"}) for name in ("a", "b", "c")]
    model = Scripted([WRITE, NO, Say(calls=calls), "done"])

    async def approve(request: PendingApproval) -> Approval | Denial:
        return Denial("no") if "go.sh a" in str(request.call.arguments) else Approval()

    folder = Path.cwd()
    settings = Settings(judge="small", permission_mode="auto", sandbox="off")
    session = await build_agent(settings, folder, SessionOptions(model=model), approve=approve)
    driver = session.start("make two files")
    await session.agent.finish_turn(driver)
    file = session.parts.outputs_dir.parent / judge_module.FILE_NAME
    [verdict] = map(json.loads, file.read_text().splitlines())
    assert verdict["ok"] is False
    assert verdict["reason"] == "the user did not ask for a file"
    await driver.aclose()
    await session.aclose()

    coverage = describe_coverage(["Bash(./go.sh b)"], folder)
    assert coverage == "1 of 4 past calls, none that you denied"
    assert (
        describe_coverage(["Bash(./go.sh:*)"], folder) == "2 of 4 past calls, and 1 that you denied"
    )
    assert await asyncio.to_thread(run, ["explain", "./go.sh b"]) == 0
    assert "(would have covered 1 of 4 past calls, none that you denied)" in capsys.readouterr().out

    judging = Scripted([YES, NO, YES, NO])
    monkeypatch.setattr(judge_module, "create_model", lambda name, settings: judging)
    code = await asyncio.to_thread(run, ["test", "--judge", "some-model"])
    assert code == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "the judge objects to 1 of 1 call that you denied and to 1 of 3 calls" in out
    assert '["make two files"]' in judging.requests[0].transcript[-1].text
