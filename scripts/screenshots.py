"""Makes the pictures of the terminal in docs/images: SVG files of real runs on a scripted model.

    python scripts/screenshots.py             all of them
    python scripts/screenshots.py approval    some, by name

SCENES is a table: a picture has a name, a title, a text that must be on it, a script for the model
and the keys that lead there. The app, the host and the files are real, in a temporary home.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.apps.tui.harness import PatientClock, RunningApp  # noqa: E402
from treadle.apps.assembly import SessionOptions  # noqa: E402
from treadle.apps.conversation.session.hosted_session import HostedSession  # noqa: E402
from treadle.apps.tui.app import TerminalApp  # noqa: E402
from treadle.apps.tui.options import TerminalOptions  # noqa: E402
from treadle.apps.tui.tour.app import TourApp, make_tour_session  # noqa: E402
from treadle.apps.tui.tour.main import temporary_home  # noqa: E402
from treadle.core.contracts.model import ModelCard, ModelRequest  # noqa: E402
from treadle.core.transcript.usage import Usage  # noqa: E402
from treadle.models.scripted import Pause, Say, Scripted, ScriptElement  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SIZE = (100, 28)
CARD = ModelCard(
    "anthropic/claude-sonnet-5-5", window=1_000_000, input_price=2.0, output_price=10.0
)
USED = Usage(input=9_400, output=210, requests=1, cost=0.031)
_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # fonts of another server

CODE = """\
def total(prices: list[float]) -> float:
    result = 0
    for price in prices:
        result =+ price
    return result
"""
READ = Say("I look at the code first.", calls=[("read", {"file_path": "shop.py"})], usage=USED)
EDIT = Say(
    "`=+` assigns, it does not add.",
    calls=[
        (
            "edit",
            {
                "file_path": "shop.py",
                "old_string": "result =+ price",
                "new_string": "result += price",
            },
        )
    ],
    usage=USED,
)
FIXED = Say(
    "The total is right now: `+=` adds each price. **One line changed**, in `shop.py`.", usage=USED
)
PUSH = Say(
    "The branch was rebased, so the push has to replace the old commits.",
    calls=[("bash", {"command": "rm -rf build && git push --force origin main"})],
    usage=USED,
)
PLAN_TEXT = (
    "# Plan: prices as decimals\n\n"
    "1. `shop.py`: `total` takes and returns `Decimal`.\n"
    "2. `tests/test_shop.py`: a case with 0.1 + 0.2, which floats get wrong.\n"
    "3. Callers: only `receipt.py` formats the result; it keeps two places.\n\n"
    "Risk: JSON needs a string for a `Decimal`."
)
PLAN = Say(
    "I have read what uses `total`.", calls=[("present_plan", {"plan": PLAN_TEXT})], usage=USED
)
_KINDS = (("explore", "find the callers"), ("review", "review the change"))


def start_agents(request: ModelRequest) -> ScriptElement:
    """The parent starts two agents; each of them reads, and then takes its time."""
    if "another agent gave you" not in request.system:
        calls = [
            ("task", {"description": text, "prompt": text, "subagent_type": kind})
            for kind, text in _KINDS
        ]
        return Say("Two agents look at it side by side.", calls=calls, usage=USED)
    if len(request.transcript) == 1:
        return Say(calls=[("read", {"file_path": "shop.py"})], usage=USED)
    return ["It is called ", Pause(), "once."]


Steps = Callable[[RunningApp], Awaitable[None]]


class Scene(msgspec.Struct, frozen=True):
    """`shows` is on the picture. `replies` is the script of the model."""

    name: str
    title: str
    shows: str
    steps: Steps
    replies: Sequence[ScriptElement] | Callable[[ModelRequest], ScriptElement] = ()
    mode: str = "ask"
    size: tuple[int, int] = SIZE
    is_tour: bool = False


def send(text: str, *, until: str) -> Steps:
    async def run(on: RunningApp) -> None:
        await on.send(text)
        await on.sees(until)

    return run


def press(*keys: str, until: str) -> Steps:
    async def run(on: RunningApp) -> None:
        await on.idle()
        await on.press(*keys)
        await on.sees(until)

    return run


def sequence(*steps: Steps) -> Steps:
    async def run(on: RunningApp) -> None:
        for step in steps:
            await step(on)

    return run


async def wait_for_agents(on: RunningApp) -> None:
    await on.send("who calls total, and is the change right?")
    await on.until(lambda: on.screen().count("shop.py") > 1 or "writing" in on.screen(), "agents")
    await on.press("ctrl+b")
    await on.sees("s sends")


FIX = send("total() returns the last price. Fix it.", until="The total is right now")
SANDBOXED = "commands write only in this folder"  # where bubblewrap is
SCENES: tuple[Scene, ...] = (
    Scene("first-screen", "The first screen", SANDBOXED, press(until="project")),
    Scene(
        "turn", "A turn with a diff", "result += price", FIX, (READ, EDIT, FIXED), "accept-edits"
    ),
    Scene(
        "approval",
        "An approval",
        "git push --force",
        send("publish it", until="Run this command?"),
        (PUSH,),
    ),
    Scene(
        "plan",
        "Plan mode",
        "prices as decimals",
        send("plan how to use decimals for prices", until="Risk"),
        (PLAN,),
        "plan",
    ),
    Scene("agents", "Agents at work", "explore", wait_for_agents, start_agents),
    Scene(
        "keys", "Commands and keys", "shift+tab", send("/help", until="shift+tab"), size=(100, 60)
    ),
    Scene(
        "rewind",
        "Rewind",
        "Rewind to before this message",
        sequence(FIX, press("escape", "escape", until="~ shop.py")),
        (READ, EDIT, FIXED),
        "accept-edits",
    ),
    Scene(
        "side-question",
        "A side question",
        "not part of the conversation",
        sequence(FIX, send("/btw does Python have a ++ operator?", until="not part of")),
        (READ, EDIT, FIXED, Say("No. `++x` is `+(+x)`: it changes nothing.", usage=USED)),
        "accept-edits",
    ),
    Scene("tour", "The tour", SANDBOXED, press(until="tour 1/"), is_tour=True),
)


@asynccontextmanager
async def open_scene(scene: Scene, folder: Path) -> AsyncIterator[RunningApp]:
    options = TerminalOptions(theme="dark")
    if scene.is_tour:
        app: TerminalApp = TourApp(make_tour_session(folder), options, PatientClock())
    else:
        prepare_folder(folder)
        model = Scripted(scene.replies, name=CARD.name, card=CARD)
        flags = {"sandbox": "auto", "permission_mode": scene.mode}
        session = HostedSession(folder, flags, SessionOptions(model=model))
        session.trust.give()
        app = TerminalApp(session, options, PatientClock())
    async with app.run_test(size=scene.size) as pilot:
        running = RunningApp(app, pilot, folder)
        await running.until(lambda: app._conversation is not None, "the session")
        yield running
        if app._question_task is not None:
            app._question_task.cancel()
        await app._close(0)


def prepare_folder(folder: Path) -> None:
    (folder / "shop.py").write_text(CODE, encoding="utf-8")
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)


async def render_scene(scene: Scene) -> str:
    """The picture as SVG; AssertionError with the screen if its text does not come."""
    with temporary_home() as folder:
        async with open_scene(scene, folder) as on:
            await scene.steps(on)
            await on.sees(scene.shows)
            await on.pilot.pause(0.3)  # for what is drawn after it: a preview, the status line
            svg = on.app.export_screenshot(title=f"treadle · {scene.title}")
    return _FONT_FACE.sub("", svg).replace(str(folder.parent), "~")


async def write_scenes(names: Sequence[str]) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    for scene in SCENES:
        if not names or scene.name in names:
            (IMAGES / f"{scene.name}.svg").write_text(await render_scene(scene), encoding="utf-8")
            print(f"docs/images/{scene.name}.svg")


def main(names: Sequence[str]) -> int:
    unknown = set(names) - {scene.name for scene in SCENES}
    if unknown:
        known = ", ".join(scene.name for scene in SCENES)
        print(f"no picture {', '.join(sorted(unknown))}; there are {known}", file=sys.stderr)
        return 2
    asyncio.run(write_scenes(names))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
