"""In every state the screen can be resized, takes a paste of 10 MB, and can be hung up."""

import pytest
from textual import events

from tests.apps.tui.harness import RunningApp, running_app, scripted
from treadle.models.scripted import Pause, Say

BASH = ("bash", {"command": "touch made.txt"})
SIZES = ((40, 15), (12, 4), (1, 1), (200, 60), (80, 24))
PASTE = "word " * 2_000_000


async def open_state(on: RunningApp, state: str, pause: Pause) -> str:
    """Bring the app into a state; a text that the screen shows in it."""
    match state:
        case "history search":
            await on.press("ctrl+r")
            return "search earlier messages"
        case "list of keys":
            await on.press("?")
            return "shift+tab"
        case "transcript search":
            await on.press("ctrl+f")
            return "Search"
        case "filter":
            await on.send("/model")
            return "Model (now"
        case "approval" | "reason":
            await on.send("go")
            await on.until(pause.reached.is_set)
            pause.release()
            await on.sees("Run this command?")
            if state == "approval":
                return "Run this command?"
            await on.press("r", "enter")
            return "Why not?"
        case "queue":
            await on.send("go")
            await on.until(pause.reached.is_set)
            await on.send("later")
            await on.send("/queue")
            return "Queued messages"
        case _:
            await on.type("a draft")
            return "a draft"


@pytest.mark.parametrize(
    "state",
    [
        *("prompt", "history search", "list of keys", "transcript search"),
        *("filter", "approval", "reason", "queue"),
    ],
)
async def test_a_resize_a_huge_paste_and_a_hangup_in_every_state(monkeypatch, tmp_path, state):
    pause = Pause()
    model = scripted([[Say(calls=[BASH]), pause], "End."])
    async with running_app(monkeypatch, model, drafts_dir=tmp_path / "drafts") as on:
        shown = await open_state(on, state, pause)
        await on.sees(shown)
        for size in SIZES:
            await on.pilot.resize_terminal(*size)
        await on.sees(shown)
        on.app.post_message(events.Paste(PASTE))
        on.app.post_message(events.Key("x", "x"))
        await on.pilot.pause()
        if state not in ("list of keys", "approval", "queue"):
            await on.sees(shown)
        assert len(on.app.prompt.text) < 2_000  # a placeholder
        on.app.start_task(on.app._close(143))
        await on.until(lambda: on.app._exit, "the end")
        assert on.app.return_code == 143
        if state == "prompt":
            (draft,) = (tmp_path / "drafts").glob("*.json")
            assert b"a draft" in draft.read_bytes()
