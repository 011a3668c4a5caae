"""Plan mode ends: the plan is shown, edited, accepted into a mode, or sent back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.tui.harness import exists, make_editor, running_app, scripted
from treadle.apps.conversation.choices import PlanAnswer
from treadle.apps.conversation.plans import (
    find_accepted_plan,
    make_plan_question,
    parse_plan_answer,
)
from treadle.models.scripted import Say, ScriptElement

PLAN = "# Rename it\n\n1. Change `a.py`\n2. Run the tests"
PRESENT = ("present_plan", {"plan": PLAN})
WRITE = ("write", {"file_path": "a.py", "content": "x = 1\n"})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Yes, and edit files without asking", PlanAnswer("accept-edits", PLAN)),
        ("Yes, and also run commands in the sandbox", PlanAnswer("auto", PLAN)),
        ("Yes, and ask before each change", PlanAnswer("ask", PLAN)),
        ("Keep planning", PlanAnswer()),
        (None, PlanAnswer()),
        ("yes, but rename b.py, too", PlanAnswer(comment="yes, but rename b.py, too")),
        (PlanAnswer("ask", "shorter"), PlanAnswer("ask", "shorter")),
    ],
)
def test_an_answer_accepts_the_plan_only_if_it_is_a_choice(answer, expected):
    assert parse_plan_answer(PLAN, answer) == expected


def test_the_question_shows_the_plan_and_offers_the_modes():
    question = make_plan_question(PLAN)
    assert question.plan == PLAN
    assert len(question.choices) == 4


async def test_a_plan_is_sent_back_edited_and_accepted(monkeypatch):
    script: list[ScriptElement] = [
        Say(calls=[WRITE]),
        Say(calls=[PRESENT]),
        Say(calls=[("ExitPlanMode", {"plan": PLAN})]),
        Say(calls=[WRITE]),
        "Renamed.",
    ]
    model = scripted(script)
    flags: dict[str, object] = {"permission_mode": "plan"}
    async with running_app(monkeypatch, model, flags=flags, size=(80, 30)) as on:
        await on.send("rename it")
        await on.sees("The plan is ready. Accept it?")
        assert not exists("a.py")  # plan mode denied the first call
        assert "1. Change a.py" in on.screen()
        await on.press("n", "enter")
        await on.sees("What should change?")
        await on.press(*"shorter", "enter")
        await on.sees("The plan is ready. Accept it?")
        assert "● present_plan Rename it  " in on.screen()
        assert "wants this changed: shorter" in str(model.requests[-1].transcript[-1].text)
        await on.press("e", "enter")
        await on.sees("Edit the plan")
        await on.press(*" now", "escape")
        await on.sees("The plan is ready. Accept it?")
        await on.press("e", "enter")
        await on.sees("Edit the plan; enter ends")
        await on.press("enter")
        await on.sees("2. Run the tests now")
        await on.press("y", "enter")
        await on.sees("Renamed.")
        await on.idle()
        assert exists("a.py")
        assert on.app.session.permissions.mode == "accept-edits"
        await on.send("/plan")
        await on.sees("Run the tests now")
        assert "# Rename it" not in on.screen()  # it is rendered
        session = on.app.conversation.driver.session_id
        assert find_accepted_plan(on.app.conversation.driver.history) == f"{PLAN} now"
        assert "this is the plan now" in str(
            [item for request in model.requests for item in request.transcript]
        )
    model = scripted(["Yes."])
    async with running_app(monkeypatch, model, resume=session) as on:
        assert find_accepted_plan(on.app.conversation.driver.history) == f"{PLAN} now"
        await on.app.conversation.compact()
        shown = [
            item.text for item in on.app.conversation.driver.transcript if hasattr(item, "kind")
        ]
        assert any(f"The plan that the user accepted:\n{PLAN} now" in text for text in shown)


async def test_a_plan_that_is_not_accepted_changes_nothing(monkeypatch):
    script: list[ScriptElement] = [Say(calls=[PRESENT]), "I wait."]
    flags: dict[str, object] = {"permission_mode": "plan"}
    async with running_app(monkeypatch, scripted(script), flags=flags, size=(40, 15)) as on:
        await on.send("rename it")
        await on.sees("The plan is ready.")
        await on.press("escape")
        await on.sees("I wait.")
        assert on.app.session.permissions.mode == "plan"
    assert not list(Path.cwd().glob("*.py"))


async def test_a_plan_is_edited_in_the_editor(monkeypatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", make_editor("more", 'printf "\\n3. Commit it\\n" >> "$1"'))
    flags: dict[str, object] = {"permission_mode": "plan"}
    model = scripted([Say(calls=[PRESENT]), "I begin."])
    async with running_app(monkeypatch, model, flags=flags, size=(80, 30)) as on:
        await on.send("rename it")
        await on.sees("ctrl+g: your editor")
        await on.press("ctrl+g")
        await on.sees("3. Commit it")
        for editor, problem in (
            (
                make_editor("failing", 'echo other > "$1"; exit 3'),
                "exit code 3; the text is unchanged",
            ),
            (make_editor("emptying", 'echo > "$1"'), "The edited plan was empty: the plan is"),
        ):
            monkeypatch.setenv("EDITOR", editor)
            await on.press("ctrl+g")
            await on.sees(problem)
            await on.sees("3. Commit it")
        # what was typed in the dialog goes to the editor, and comes back
        monkeypatch.setenv("EDITOR", make_editor("last", 'printf "\\n5. Push it" >> "$1"'))
        await on.press("e", "enter")
        await on.sees("Edit the plan; enter ends")
        await on.press("shift+enter", *"4. Tag it", "ctrl+g")
        await on.sees("5. Push it")
        await on.press("enter")
        await on.sees("The plan is ready. Accept it?")
        await on.press("m", "enter")
        await on.sees("I begin.")
        accepted = find_accepted_plan(on.app.conversation.driver.history)
        assert accepted == f"{PLAN}\n3. Commit it\n4. Tag it\n5. Push it"


async def test_the_end_of_a_turn_closes_the_editor_and_the_screen_is_back(monkeypatch):
    monkeypatch.delenv("VISUAL", raising=False)
    editor = make_editor("waiting", 'echo $$ > "$HOME/started"; exec sleep 60')
    monkeypatch.setenv("EDITOR", editor)
    flags: dict[str, object] = {"permission_mode": "plan"}
    model = scripted([Say(calls=[PRESENT]), "I wait."])
    async with running_app(monkeypatch, model, flags=flags) as on:
        await on.send("rename it")
        await on.sees("ctrl+g: your editor")
        await on.press("ctrl+g")
        started = Path.home() / "started"
        await on.until(lambda: started.exists() and bool(started.read_text()), "the editor")
        on.app.conversation.interrupt()
        await on.idle()
        await on.until(lambda: not on.app._is_editor_open, "the end of the editor")
        await on.send("/plan")
        await on.sees("no plan was accepted")
