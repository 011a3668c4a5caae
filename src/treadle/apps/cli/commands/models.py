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

from treadle.apps.cli import exit_codes
from treadle.apps.cli.console import print_error, print_line
from treadle.core.contracts.model import ModelCard, ModelOptions, ModelRequest, Reply
from treadle.core.errors import TreadleError
from treadle.core.sanitize import escape_invisible
from treadle.core.transcript.items import AssistantItem, to_user_item
from treadle.core.transcript.transcript import Transcript
from treadle.models.catalog import card_for, list_models
from treadle.models.registry import (
    KNOWN_PROVIDERS,
    ProviderEntry,
    find_key,
    find_key_variable,
    model,
)
from treadle.models.registry.default_model import DefaultModel, find_default_model
from treadle.models.registry.local_servers import LOCAL_SERVERS, LocalServer, find_local_servers

USAGE = """\
usage: treadle models [--all]        what can be used here, and why
       treadle models test [NAME]    one real call: latency, tokens, cost
       treadle models get NAME       fetch an embedded model

A NAME is PROVIDER/MODEL (anthropic/claude-sonnet-4-5), a well-known model (gpt-5), a provider
(anthropic), or embedded. Keys are read from the providers' usual variables."""

TEST_PROMPT = "Answer with the single word: ready"
ALL_SERVERS = (*LOCAL_SERVERS, "vllm")
TEST_TOKENS = 1_024  # enough for a model that thinks before it says one word


class ModelRow(NamedTuple):
    name: str
    source: str
    window: str
    price: str
    usable: bool


def run(arguments: list[str]) -> int:
    match arguments:
        case [] | ["list"]:
            work = _list_models(include_all=False)
        case ["--all" | "-a"]:
            work = _list_models(include_all=True)
        case ["test", *names] if len(names) <= 1 and not any(map(_is_option, names)):
            work = _test_model(names[0] if names else "")
        case ["get", name] if not _is_option(name):
            from treadle.apps.cli.commands.model_download import download_model

            work = download_model(name)
        case ["--help" | "-h" | "help", *_]:
            print(USAGE)
            return exit_codes.SUCCESS
        case _:
            print(f"treadle models: cannot read {' '.join(arguments)!r}", file=sys.stderr)
            print(USAGE, file=sys.stderr)
            return exit_codes.USAGE_ERROR
    try:
        return asyncio.run(work)
    except TreadleError as error:
        print_error(f"treadle: {error}")
        return exit_codes.exit_code_for(error)
    except KeyboardInterrupt:
        return exit_codes.ABORTED


def _is_option(word: str) -> bool:
    return word.startswith("-")


# ------------------------------------------------------------------ the table


async def _list_models(include_all: bool) -> int:
    servers, choice = await asyncio.gather(
        find_local_servers(names=ALL_SERVERS), find_default_model()
    )
    rows = [*_list_hosted(include_all), *_list_local(servers), *_list_embedded()]
    rows.sort(key=lambda row: not row.usable)
    print_table(rows, choice, sys.stdout)
    return exit_codes.SUCCESS


def _list_hosted(include_all: bool) -> Iterable[ModelRow]:
    for place in KNOWN_PROVIDERS.values():
        if not place.needs_key or (place.name == "openai-chat" and not include_all):
            continue
        has_key = bool(find_key(place, os.environ))
        variable = find_key_variable(place, os.environ)
        where = f"{variable} is set" if has_key else f"set {variable}"
        for name in _list_model_names(place, include_all):
            yield _make_row(card_for(f"{place.name}/{name}"), where, has_key)


def _list_model_names(provider: ProviderEntry, include_all: bool) -> list[str]:
    start = f"{provider.name}/"
    listed = [full.removeprefix(start) for full in list_models() if full.startswith(start)]
    if include_all and listed:
        return listed
    return [provider.default_model or ("DEPLOYMENT" if provider.name == "azure" else "MODEL")]


def _list_local(servers: list[LocalServer]) -> Iterable[ModelRow]:
    answering = {server.provider: server for server in servers}
    for name in ALL_SERVERS:
        server = answering.get(name)
        if server is None:
            hint = f"no server answers; {KNOWN_PROVIDERS[name].url_variables[0]} says where"
            yield ModelRow(f"{name}/MODEL", hint, "", "free", usable=False)
        elif not server.models:
            yield ModelRow(
                f"{name}/MODEL", f"{server.url} has no model yet", "", "free", usable=False
            )
        else:
            for one in server.models:
                yield _make_row(card_for(f"{name}/{one}"), f"{server.url} answers", usable=True)


def _list_embedded() -> Iterable[ModelRow]:
    from treadle.models.embedded import ALL_WEIGHTS, list_available_weights
    from treadle.models.embedded.model import WINDOW

    here, window = list_available_weights(), f"{WINDOW:,}"
    for weights in ALL_WEIGHTS:
        name = f"embedded/{weights.name}"
        if weights in here:
            yield ModelRow(name, "on this machine", window, "free", usable=True)
        else:
            size = f"{weights.size / 1e9:.1f} GB"
            where = f"treadle models get {weights.name} ({size})"
            yield ModelRow(name, where, window, "free", usable=False)


def _make_row(card: ModelCard, source: str, usable: bool) -> ModelRow:
    window = f"~{card.window:,}" if card.is_assumed else f"{card.window:,}"
    return ModelRow(card.name, source, window, format_price(card), usable)


def format_price(card: ModelCard) -> str:
    """Input and output in USD for a million tokens."""
    if card.input_price is None or card.output_price is None:
        return "not known"
    if card.input_price == card.output_price == 0:
        return "free"
    return f"${card.input_price:g} / ${card.output_price:g}"


def print_table(rows: list[ModelRow], choice: DefaultModel, out: TextIO) -> None:
    """Usable models first; the one that runs without being named is marked."""
    head = ModelRow("MODEL", "FROM", "WINDOW", "$ IN / OUT PER MILLION", usable=True)
    lines = [head, *rows]
    name_width, where_width, window_width = (
        max(map(len, column))
        for column in (
            [row.name for row in lines],
            [row.source for row in lines],
            [row.window for row in lines],
        )
    )
    paint = _make_styler(out)
    for row in lines:
        mark = "*" if row.name == choice.model else " "
        line = (
            f"{mark} {row.name:{name_width}}  {row.source:{where_width}}  "
            f"{row.window:>{window_width}}  {row.price}"
        )
        style = "1" if row is head or mark == "*" else "" if row.usable else "2"
        print(paint(escape_invisible(line), style), file=out)
    print(file=out)
    print(f"* runs when no model is named: {escape_invisible(choice.summary)}", file=out)


def _make_styler(out: TextIO) -> _AnsiStyler:
    plain = not out.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return _AnsiStyler(not plain)


class _AnsiStyler:
    def __init__(self, colours: bool) -> None:
        self._colours = colours

    def __call__(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colours and style else text


# ------------------------------------------------------------------ one real call


async def _test_model(name: str) -> int:
    if not name:
        choice = await find_default_model()
        print_line(choice.summary)
        name = choice.model
    asked = model(name)
    request = ModelRequest(
        Transcript([to_user_item(TEST_PROMPT)]), options=ModelOptions(max_tokens=TEST_TOKENS)
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
        return exit_codes.ERROR
    _print_test_result(asked.name, reply, first or 0.0, time.monotonic() - began)
    return exit_codes.SUCCESS


def _print_test_result(
    name: str, reply: AssistantItem, first_event_seconds: float, total_seconds: float
) -> None:
    usage = reply.usage
    said = " ".join(reply.text.split())
    shown = said if len(said) <= 60 else said[:60] + "..."
    cached = f" ({usage.cache_read:,} from a cache)" if usage.cache_read else ""
    thought = f" ({usage.reasoning:,} for thinking)" if usage.reasoning else ""
    print(f"{name} answers: {shown!r}")
    print(
        f"  latency  {first_event_seconds:.2f} s to the first piece, {total_seconds:.2f} s in all"
    )
    print(f"  tokens   {usage.total_input:,} in{cached}, {usage.output:,} out{thought}")
    print(f"  cost     {_format_cost(usage.cost)}")


def _format_cost(cost: float | None) -> str:
    if cost is None:
        return "not known"
    return f"${cost:.6f}" if cost else "free"
