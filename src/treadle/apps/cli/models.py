"""`treadle models`: which models can be used here and why, and whether one really answers.

    treadle models              what can be used, and what it would take to use the rest
    treadle models --all        every model of the catalog too
    treadle models test [NAME]  one real call: how fast, how many tokens, what it costs
    treadle models get NAME     fetch an embedded model

A host: it asks treadle.models and prints. Nothing is configured here.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple, TextIO

from treadle.apps.cli import exits
from treadle.apps.cli.printing import say, warn
from treadle.core.contracts.model import ModelCard, ModelOptions, ModelRequest, Reply
from treadle.core.errors import TreadleError
from treadle.core.terminal import visible
from treadle.core.transcript.items import AssistantItem, user
from treadle.core.transcript.transcript import Transcript
from treadle.models.catalog import card_for, known
from treadle.models.choice import (
    LOCAL_SERVERS,
    Choice,
    LocalServer,
    choose,
    key_variable,
    local_servers,
)
from treadle.models.names import PLACES, Place, key_of, model

USAGE = """\
usage: treadle models [--all]        what can be used here, and why
       treadle models test [NAME]    one real call: latency, tokens, cost
       treadle models get NAME       fetch an embedded model

A NAME is PROVIDER/MODEL (anthropic/claude-sonnet-4-5), a well-known model (gpt-5), a provider
(anthropic), or embedded. Keys are read from the providers' usual variables."""

QUESTION = "Answer with the single word: ready"
ALL_SERVERS = (*LOCAL_SERVERS, "vllm")
TEST_TOKENS = 1_024  # enough for a model that thinks before it says one word


class Row(NamedTuple):
    name: str
    where: str
    window: str
    price: str
    usable: bool


def run(arguments: list[str]) -> int:
    match arguments:
        case [] | ["list"]:
            work = _list(everything=False)
        case ["--all" | "-a"]:
            work = _list(everything=True)
        case ["test", *names] if len(names) <= 1 and not any(map(_is_option, names)):
            work = _test(names[0] if names else "")
        case ["get", name] if not _is_option(name):
            from treadle.apps.cli.fetching import get

            work = get(name)
        case ["--help" | "-h" | "help", *_]:
            print(USAGE)
            return exits.DONE
        case _:
            print(f"treadle models: cannot read {' '.join(arguments)!r}", file=sys.stderr)
            print(USAGE, file=sys.stderr)
            return exits.USAGE
    try:
        return asyncio.run(work)
    except TreadleError as error:
        warn(f"treadle: {error}")
        return exits.code_for(error)
    except KeyboardInterrupt:
        return exits.ABORTED


def _is_option(word: str) -> bool:
    return word.startswith("-")


# ------------------------------------------------------------------ the table


async def _list(everything: bool) -> int:
    servers, choice = await asyncio.gather(local_servers(names=ALL_SERVERS), choose())
    rows = [*_hosted(everything), *_served(servers), *_embedded()]
    rows.sort(key=lambda row: not row.usable)
    print_table(rows, choice, sys.stdout)
    return exits.DONE


def _hosted(everything: bool) -> Iterable[Row]:
    for place in PLACES.values():
        if not place.key_needed or (place.name == "openai-chat" and not everything):
            continue
        has_key = bool(key_of(place, os.environ))
        variable = key_variable(place, os.environ)
        where = f"{variable} is set" if has_key else f"set {variable}"
        for name in _names_of(place, everything):
            yield _row(card_for(f"{place.name}/{name}"), where, has_key)


def _names_of(place: Place, everything: bool) -> list[str]:
    start = f"{place.name}/"
    listed = [full.removeprefix(start) for full in known() if full.startswith(start)]
    if everything and listed:
        return listed
    return [place.default or ("DEPLOYMENT" if place.name == "azure" else "MODEL")]


def _served(servers: list[LocalServer]) -> Iterable[Row]:
    answering = {server.provider: server for server in servers}
    for name in ALL_SERVERS:
        server = answering.get(name)
        if server is None:
            hint = f"no server answers; {PLACES[name].urls[0]} says where"
            yield Row(f"{name}/MODEL", hint, "", "free", usable=False)
        elif not server.models:
            yield Row(f"{name}/MODEL", f"{server.url} has no model yet", "", "free", usable=False)
        else:
            for one in server.models:
                yield _row(card_for(f"{name}/{one}"), f"{server.url} answers", usable=True)


def _embedded() -> Iterable[Row]:
    from treadle.models.embedded import KNOWN, available
    from treadle.models.embedded.model import WINDOW

    here, window = available(), f"{WINDOW:,}"
    for weights in KNOWN:
        name = f"embedded/{weights.name}"
        if weights in here:
            yield Row(name, "on this machine", window, "free", usable=True)
        else:
            size = f"{weights.bytes / 1e9:.1f} GB"
            where = f"treadle models get {weights.name} ({size})"
            yield Row(name, where, window, "free", usable=False)


def _row(card: ModelCard, where: str, usable: bool) -> Row:
    is_guess = "assumed" in card.note or card.input_price == 0
    window = f"~{card.window:,}" if is_guess else f"{card.window:,}"
    return Row(card.name, where, window, price_of(card), usable)


def price_of(card: ModelCard) -> str:
    """Input and output in USD for a million tokens."""
    if card.input_price is None or card.output_price is None:
        return "not known"
    if card.input_price == card.output_price == 0:
        return "free"
    return f"${card.input_price:g} / ${card.output_price:g}"


def print_table(rows: list[Row], choice: Choice, out: TextIO) -> None:
    """Usable models first; the one that runs without being named is marked."""
    head = Row("MODEL", "FROM", "WINDOW", "$ IN / OUT PER MILLION", usable=True)
    lines = [head, *rows]
    name_width, where_width, window_width = (
        max(map(len, column))
        for column in (
            [row.name for row in lines],
            [row.where for row in lines],
            [row.window for row in lines],
        )
    )
    paint = _paint(out)
    for row in lines:
        mark = "*" if row.name == choice.model else " "
        line = (
            f"{mark} {row.name:{name_width}}  {row.where:{where_width}}  "
            f"{row.window:>{window_width}}  {row.price}"
        )
        style = "1" if row is head or mark == "*" else "" if row.usable else "2"
        print(paint(visible(line), style), file=out)
    print(file=out)
    print(f"* runs when no model is named: {visible(choice.line)}", file=out)


def _paint(out: TextIO) -> _Painter:
    plain = not out.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return _Painter(not plain)


class _Painter:
    def __init__(self, colours: bool) -> None:
        self._colours = colours

    def __call__(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colours and style else text


# ------------------------------------------------------------------ one real call


async def _test(name: str) -> int:
    if not name:
        choice = await choose()
        say(choice.line)
        name = choice.model
    asked = model(name)
    request = ModelRequest(
        Transcript([user(QUESTION)]), options=ModelOptions(max_tokens=TEST_TOKENS)
    )
    began = time.monotonic()
    first: float | None = None
    reply: AssistantItem | None = None
    try:
        async for event in asked.stream(request):
            if first is None:
                first = time.monotonic() - began
            if isinstance(event, Reply):
                reply = event.item
    finally:
        await asked.aclose()
    if reply is None:  # no model that keeps the contract ends without one
        print(f"treadle: {asked.name} ended without a reply", file=sys.stderr)
        return exits.ERROR
    _report(asked.name, reply, first or 0.0, time.monotonic() - began)
    return exits.DONE


def _report(name: str, reply: AssistantItem, first: float, whole: float) -> None:
    usage = reply.usage
    said = " ".join(reply.text.split())
    shown = said if len(said) <= 60 else said[:60] + "..."
    cached = f" ({usage.cache_read:,} from a cache)" if usage.cache_read else ""
    thought = f" ({usage.reasoning:,} for thinking)" if usage.reasoning else ""
    print(f"{name} answers: {shown!r}")
    print(f"  latency  {first:.2f} s to the first piece, {whole:.2f} s in all")
    print(f"  tokens   {usage.total_input:,} in{cached}, {usage.output:,} out{thought}")
    print(f"  cost     {_money(usage.cost)}")


def _money(cost: float | None) -> str:
    if cost is None:
        return "not known"
    return f"${cost:.6f}" if cost else "free"
