"""Makes the pictures of the page in docs/pictures: a browser at `treadle web` with real work.

    python scripts/page_pictures.py

The server, the files, the commands and their output are real, in a temporary home. A provider on
loopback says what the model would say, with the tokens that such requests have. Of the sessions of
the days before, only the logs are written. Needs chromium (scripts/debian-packages). The pictures
of the terminal are made by screenshots.py.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from playwright.async_api import Browser, Page, async_playwright  # noqa: E402

from treadle.core.transcript.entries import (  # noqa: E402
    ItemAdded,
    TurnBegan,
    TurnEnded,
    UsageRecorded,
)
from treadle.core.transcript.items import AssistantItem, to_user_item  # noqa: E402
from treadle.core.transcript.usage import Usage  # noqa: E402
from treadle.sessions import Library  # noqa: E402
from treadle.testing.provider import (  # noqa: E402
    FakeCall,
    FakeReply,
    FakeUsage,
    ProviderFault,
    ProviderServer,
    ReceivedRequest,
)

PICTURES = ROOT / "docs" / "pictures"
NAMES = (
    *("work-dark", "work-phone", "review-dark", "settings-light", "inspect-light"),
    *("why-cost-light", "cost-light"),
)
DESKTOP, PHONE = (1440, 900), (390, 844)
SONNET = "anthropic/claude-sonnet-5-5"
OPUS, HAIKU = "anthropic/claude-opus-5-5", "anthropic/claude-haiku-5-5"
GPT = "openai/gpt-6.1-sol"
DAY = 86_400.0
NEW_SESSION = "async (body) => (await fetch('/new', { method: 'POST', body })).json()"

# ------------------------------------------------------------------ the project and its story

SHOP = '''\
"""Prices of a basket."""

TAX = 0.2
SHIPPING = 4.9


def total(prices):
    """The sum of the prices, without tax."""
    return sum(prices)


def with_tax(price):
    return round(price * (1 + TAX), 2)


def shipping(prices):
    """Nothing from 50 on."""
    if total(prices) > 50:
        return 0.0
    return SHIPPING


def receipt(prices):
    lines = [f"{price:8.2f}" for price in prices]
    lines.append(f"{with_tax(total(prices)):8.2f}")
    return "\\n".join(lines)
'''
TESTS = """\
import unittest

from shop import shipping, total, with_tax


class Prices(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2]), 3)

    def test_tax(self):
        self.assertEqual(with_tax(10), 12)
"""
SETTINGS = f"""\
model = "{SONNET}"
small_model = "{HAIKU}"
max_cost = 2.5
sandbox_readable = ["~/.cache/pip"]
"""
CHECK = FakeCall("bash", {"command": "python3 -m unittest -q"})


def read(path: str) -> FakeCall:
    return FakeCall("read", {"file_path": path})


def edit(path: str, old: str, new: str) -> FakeCall:
    return FakeCall("edit", {"file_path": path, "old_string": old, "new_string": new})


def use(cached: int, new: int, output: int) -> FakeUsage:
    """A request of which the provider has a part in its cache, and keeps the rest."""
    return FakeUsage(input=12, cache_read=cached, cache_write=new, output=output)


# By the first message of a session: what the model says, reply by reply.
STORIES: dict[str, Sequence[FakeReply]] = {
    "Shipping is free from 50 on, not above 50": (
        FakeReply(
            text="I read the function and its tests first.",
            calls=(read("shop.py"), read("test_shop.py")),
            usage=use(0, 12_900, 96),
        ),
        FakeReply(
            text="`>` leaves out the 50 itself. I mend it and add a test.",
            calls=(
                edit("shop.py", "if total(prices) > 50:", "if total(prices) >= 50:"),
                edit(
                    "test_shop.py",
                    "        self.assertEqual(with_tax(10), 12)\n",
                    "        self.assertEqual(with_tax(10), 12)\n\n"
                    "    def test_shipping(self):\n"
                    "        self.assertEqual(shipping([20, 30]), 0)\n"
                    "        self.assertEqual(shipping([49.99]), 4.9)\n",
                ),
            ),
            usage=use(12_900, 880, 240),
        ),
        FakeReply(calls=(CHECK,), usage=use(13_780, 420, 60)),
        FakeReply(
            text="Shipping is free from 50 on: `>=` in `shop.py`. The new test has both sides "
            "of the limit, and all three tests pass.",
            usage=use(14_200, 260, 70),
        ),
        FakeReply(
            text="The names of the rates say more as constants of their own.",
            calls=(
                edit(
                    "shop.py",
                    "TAX = 0.2\nSHIPPING = 4.9",
                    "TAX = 0.2\nSHIPPING = 4.9\nFREE_FROM = 50",
                ),
                edit("shop.py", "if total(prices) >= 50:", "if total(prices) >= FREE_FROM:"),
                edit("shop.py", '"""Nothing from 50 on."""', '"""Nothing from FREE_FROM on."""'),
            ),
            usage=use(14_460, 310, 230),
        ),
        FakeReply(calls=(CHECK,), usage=use(14_770, 530, 58)),
        FakeReply(text="The limit has a name now, `FREE_FROM`.", usage=use(15_300, 190, 24)),
    ),
    "Why is 2.675 rounded to 2.67?": (
        FakeReply(
            text="I look where the shop rounds.",
            calls=(FakeCall("grep", {"pattern": "round|total"}), read("shop.py")),
            usage=use(0, 13_100, 110),
        ),
        FakeReply(
            text="A float cannot hold 2.675: it is stored as 2.67499…, and so `round` is right.",
            usage=use(13_100, 1_240, 140),
        ),
        FakeReply(text="A `Decimal` rounds as on paper.", usage=use(0, 14_600, 90)),
    ),
    "Use decimals: 0.1 + 0.2 is not 0.3": (
        FakeReply(
            thinking="Floats cannot hold 0.1. Decimal can, if the prices come as text or cents.",
            text="Floats cannot hold 0.1 exactly. I look at what uses `total` first.",
            calls=(
                FakeCall(
                    "todo",
                    {
                        "todos": [
                            {"content": "Find what uses total()", "status": "completed"},
                            {"content": "Decimals in shop.py", "status": "in_progress"},
                            {"content": "A test with 0.1 + 0.2", "status": "pending"},
                            {"content": "Run the tests", "status": "pending"},
                        ]
                    },
                ),
                FakeCall("grep", {"pattern": "total\\("}),
                read("shop.py"),
            ),
            usage=use(0, 12_900, 310),
        ),
        FakeReply(
            text="`shipping` and `receipt` use it. The rates become decimals first:",
            calls=(
                edit(
                    "shop.py",
                    '"""Prices of a basket."""\n\nTAX = 0.2\nSHIPPING = 4.9\n',
                    '"""Prices of a basket."""\n\nfrom decimal import Decimal\n\n'
                    'TAX = Decimal("0.2")\nSHIPPING = Decimal("4.9")\n',
                ),
            ),
            usage=use(12_900, 1_650, 260),
        ),
    ),
}
# Work of the days before: folder, message, model, cost, tokens in, of these cached, out.
PAST = (
    (8, "shop", "Write the functions for a basket", SONNET, 0.41, 310_000, 0.94, 9_800),
    (7, "parser", "Parse durations such as 1h30m", SONNET, 0.36, 268_000, 0.95, 7_100),
    (6, "parser", "Reject negative durations", HAIKU, 0.012, 61_000, 0.91, 1_900),
    (4, "shop", "Add shipping to the basket", SONNET, 0.28, 205_000, 0.95, 5_600),
    (3, "parser", "Find out why 90m is read as 90 months", GPT, 0.52, 340_000, 0.88, 8_200),
    (0, "shop", "Print a receipt with aligned prices", SONNET, 0.22, 172_000, 0.96, 4_300),
    (1, "parser", "Document the format in the readme", HAIKU, 0.015, 74_000, 0.92, 2_600),
    (1, "parser", "Make parse() twice as fast", SONNET, 0.63, 462_000, 0.96, 11_900),
)


def answer(request: ReceivedRequest) -> FakeReply:
    """The next reply of the story whose message the request has."""
    text = request.body.decode()
    messages: Any = request.json["messages"]
    count = sum(one["role"] == "assistant" for one in messages)
    [story] = [replies for message, replies in STORIES.items() if message in text]
    reply: FakeReply = story[count]
    return reply


async def write_past(home: Path) -> None:
    library = Library(home / ".local" / "share" / "treadle" / "sessions")
    for days, name, text, model, cost, tokens, share, output in PAST:
        began = time.time() - days * DAY - 3_600

        def read_clock(began: float = began) -> float:
            return began

        requests = round(tokens / 14_000)
        cached = round(tokens * share)
        usage = Usage(
            input=(tokens - cached) // requests, output=output // requests,
            cache_read=cached // requests, requests=1, cost=cost / requests,
        )  # fmt: skip
        session = f"{time.strftime('%y%m%d', time.localtime(began))}-{os.urandom(3).hex()}"
        journal = library.create(home / name, session_id=session, clock=read_clock)
        journal.append(TurnBegan("turn-1"))
        journal.append(ItemAdded(to_user_item(text)))
        journal.append(ItemAdded(AssistantItem(())))
        for _ in range(requests):
            journal.append(UsageRecorded(model, usage, "turn"))
        journal.append(TurnEnded("turn-1", "end_turn"))
        await journal.aclose()
        for file in library.find(session).iterdir():
            os.utime(file, (began, began))


def prepare(home: Path) -> None:
    for name in ("shop", "parser"):
        (home / name).mkdir()
    (home / "shop" / "shop.py").write_text(SHOP)
    (home / "shop" / "test_shop.py").write_text(TESTS)
    (home / "shop" / ".gitignore").write_text("__pycache__/\n")
    git = ("git", "-c", "user.name=Shop", "-c", "user.email=shop@example.org")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "A basket"]):
        subprocess.run([*git, *words], cwd=home / "shop", check=True)
    (home / ".treadle").mkdir()
    (home / ".treadle" / "config.toml").write_text(SETTINGS)


# ------------------------------------------------------------------ the server and the browser


@asynccontextmanager
async def run_server(home: Path, provider: ProviderServer) -> AsyncIterator[str]:
    """`treadle web` in the shop: its link."""
    environment = {
        "HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"),
        "ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": "k",
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "treadle", "web"),
        cwd=home / "shop", env=environment, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().split()[-1]
    finally:
        process.terminate()
        await process.wait()


class Tab:
    """One page of the browser, at one size and in one theme."""

    def __init__(self, page: Page, link: str, folder: Path) -> None:
        self.page = page
        self._folder = folder
        self.address = link.partition("/?")[0]

    async def start_session(self, mode: str) -> None:
        """A new session in the shop, in this mode."""
        made = await self.page.evaluate(NEW_SESSION, str(self._folder))
        await self.page.goto(f"{self.address}/session/{made['session']}")
        await self.page.wait_for_selector("text=Connected")
        if mode != "ask":
            await self.say(f"/mode {mode}")
            await self.page.wait_for_selector(f"#form >> text={mode}")

    async def say(self, text: str, until: str = "") -> None:
        await self.page.fill("#prompt", text)
        await self.page.press("#prompt", "Enter")
        if until:
            await self.page.wait_for_selector(until)
            await self.page.wait_for_selector("#now:empty", state="attached")

    async def take(self, name: str, folder: Path) -> None:
        assert name in NAMES
        await self.page.wait_for_timeout(600)  # what is drawn after it: highlights, a preview
        await self.page.screenshot(path=folder / f"{name}.png")
        print(name)


@asynccontextmanager
async def open_tab(
    browser: Browser, link: str, shop: Path, theme: str, size: tuple[int, int] = DESKTOP
) -> AsyncIterator[Tab]:
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=theme,  # type: ignore[arg-type]
        reduced_motion="reduce",
        has_touch=size == PHONE,
    )
    try:
        page = await context.new_page()
        await page.goto(link)
        yield Tab(page, link, shop)
    finally:
        await context.close()


async def take_all(browser: Browser, link: str, shop: Path, folder: Path) -> None:
    free, cents, decimals = STORIES
    async with open_tab(browser, link, shop, "dark") as tab:
        page = tab.page
        await tab.start_session("auto")
        await tab.say(free, ".prose >> text=all three tests pass")
        await tab.say("Give the limit a name", ".prose >> text=FREE_FROM")
        shipping = page.url.rpartition("/")[2]
        await page.wait_for_timeout(1_500)  # the list of sessions is a second old at most
        await page.reload()
        await page.wait_for_selector("text=Connected")
        await page.click("[href='#review']")
        await page.click("#pane >> text=Session")
        await page.wait_for_selector(".hunk-card ins")
        await tab.take("review-dark", folder)

        await tab.start_session("auto")
        await tab.say(cents, ".prose >> text=is right")
        await tab.say(f"/model {OPUS}")
        await page.wait_for_selector("#form >> text=claude-opus-5-5")
        await tab.say("And what rounds as on paper?", ".prose >> text=rounds as on paper")
        broken = page.url.rpartition("/")[2]

        await tab.start_session("ask")
        await tab.say(decimals)
        await page.wait_for_selector(".ask")
        await page.click("text=Side by side")
        await page.wait_for_selector("table.diff.split")
        await tab.take("work-dark", folder)
        waiting = page.url.rpartition("/")[2]
    async with open_tab(browser, link, shop, "light", PHONE) as tab:
        await tab.page.goto(f"{tab.address}/session/{waiting}")
        await tab.page.wait_for_selector(".ask")
        await tab.take("work-phone", folder)
    async with open_tab(browser, link, shop, "light") as tab:
        page = tab.page
        await page.goto(f"{tab.address}/session/{shipping}")
        await page.wait_for_selector("text=Connected")
        await page.click("[href='#settings']")
        await page.click("#pane [data-rows=changed]")
        await tab.take("settings-light", folder)
        await page.goto(f"{tab.address}/inspect/{shipping}")
        await page.wait_for_selector("text=Request 7")
        await page.click("[data-range=all]")
        await page.locator("[data-column='3'] .hit").first.click()
        await page.wait_for_selector("#sheet >> text=Request 4")
        await page.click("text=As sent")
        await page.click("[data-range=turn]")
        await tab.take("inspect-light", folder)
        await page.goto(f"{tab.address}/inspect/{broken}")
        await page.wait_for_selector("text=Request 3")
        await page.click("[data-range=all]")
        await page.locator("[data-column='2'] .hit").first.click()
        await page.wait_for_selector("text=The cache broke here")
        await tab.take("why-cost-light", folder)
        await page.goto(f"{tab.address}/cost")
        await page.wait_for_selector("text=By session")
        await tab.take("cost-light", folder)


async def make_pictures(folder: Path, home: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("there is no chromium here: scripts/debian-packages installs it")
    paced = ProviderFault("paced", times=-1, seconds=0.06)
    prepare(home)
    await write_past(home)
    async with ProviderServer(answer, faults=[paced]) as provider, async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        async with run_server(home, provider) as link:
            await take_all(browser, link, home / "shop", folder)
        await browser.close()


if __name__ == "__main__":
    home = Path(tempfile.gettempdir(), "home").resolve()  # questions name whole paths
    home.mkdir()
    try:
        asyncio.run(make_pictures(PICTURES, home))
    finally:
        shutil.rmtree(home)
