"""What the tests of the page do in a browser: write a message, check axe, take a picture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import axe_playwright_python  # type: ignore[import-untyped]  # it ships no types
from playwright.async_api import Page

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
SCREENSHOTS = os.environ.get("TREADLE_SCREENSHOTS", "")  # a folder to keep pictures in
PHONE = (390, 844)

# Without motion, so that no colour is on its way to another one.
ACCESSIBILITY: dict[str, Any] = {"bypass_csp": True, "reduced_motion": "reduce"}


async def wait_until_shown(page: Page) -> None:
    """The page has the newest state of its session: connected alone is less."""
    await page.wait_for_selector("#head h1")
    await page.wait_for_selector("text=Connected")


async def send(page: Page, text: str) -> None:
    await page.fill("#prompt", text)
    await page.press("#prompt", "Enter")


async def open_inspection(page: Page) -> None:
    """Inspect with its script: before that is there, a click does nothing."""
    await page.click("#inspect-link")
    await page.wait_for_url("**/inspect/**")


async def check_accessibility(page: Page, part: str = "html") -> None:
    """axe-core finds nothing serious in this part; what depends on colours, in both themes."""
    await page.add_script_tag(path=AXE)
    for theme, only in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
        await page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        options = {"resultTypes": ["violations"], **only}
        found = await page.evaluate("([part, options]) => axe.run(part, options)", [part, options])
        serious = [
            f"{theme}, {one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert not serious, "\n".join(serious)


async def take_picture(page: Page, name: str) -> None:
    """Both themes, if pictures are wanted."""
    for theme in ("light", "dark") if SCREENSHOTS else ():
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        await page.screenshot(path=Path(SCREENSHOTS) / f"{name}-{theme}.png")
