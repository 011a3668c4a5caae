"""Types sentences at open approvals and questions of the page, in a real browser.

At an approval a sentence is a message, at a question of the model it is the answer, wherever the
focus was; both arrive whole. Used by test_typed_sentences.py and benchmarks/random_keys.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path

from playwright.async_api import Page, expect

from tests.apps.web.browser import wait_until_shown
from tests.apps.web.conftest import Site
from tests.apps.web.server import web_server
from tests.sentences import AskingModel, make_batches
from treadle.testing.provider.server import ProviderServer

FOCUS = (".ask", "#prompt")  # where a person may have clicked before


async def type_sentences(site: Site, folder: Path, sentences: list[str], seed: int) -> None:
    """Type them all. Raises if one was taken as an answer to an approval, or did not arrive."""
    async with (
        ProviderServer(AskingModel(), strict=False) as provider,
        web_server(provider, folder, HOME=str(folder.parent)) as server,
        site.open_page(await server.find_session(), server=server) as page,
    ):
        await page.clock.install()
        await wait_until_shown(page)
        await _send(page, "go")
        await _type_batches(page, provider, sentences, seed)
    made = await asyncio.to_thread(os.listdir, folder)
    assert made == [], "a sentence ran a command, or saved a rule"


async def _type_batches(
    page: Page, provider: ProviderServer, sentences: list[str], seed: int
) -> None:
    chosen = random.Random(seed)
    for place, batch in enumerate(make_batches(sentences)):
        await page.wait_for_selector(f".ask >> text=made-{2 * place}")
        for sentence in batch[:-1]:
            if chosen.random() < 0.5:
                await page.focus(chosen.choice(FOCUS))
            if chosen.random() < 0.5:
                await page.clock.run_for(1_000)  # from now on the question takes keys
            await _send(page, sentence)
        await _deny(page)
        question = f".ask >> text=Which of {2 * place + 1}?"
        await page.wait_for_selector(question)
        body = provider.generation_requests[-1].body.decode()
        lost = [one for one in batch[:-1] if json.dumps(one)[1:-1] not in body]
        assert lost == [], f"lost at an approval: {lost}"
        await page.clock.run_for(1_000)
        await _send(page, batch[-1])
        await page.wait_for_selector(question, state="detached")
        await page.wait_for_selector(f".ask >> text=made-{2 * place + 2}")
        body = provider.generation_requests[-1].body.decode()
        assert json.dumps(batch[-1])[1:-1] in body, f"lost: {batch[-1]!r}"
    assert len(provider.generation_requests) == 2 * len(make_batches(sentences)) + 1


async def _send(page: Page, sentence: str) -> None:
    """Enter is pressed when the sentence stands in the prompt, all of it."""
    await page.keyboard.type(sentence)
    await expect(page.locator("#prompt")).to_have_value(sentence)
    await page.keyboard.press("Enter")
    await expect(page.locator("#prompt")).to_have_value("")


async def _deny(page: Page) -> None:
    await page.focus(".ask")
    await page.clock.run_for(1_000)
    await page.keyboard.press("n")
    await page.keyboard.press("Enter")
