"""`treadle models`: lists the usable models, and tests or downloads one.

    treadle models              usable models, and how to make the others usable
    treadle models --all        every model of the catalog, too
    treadle models test [NAME]  one real call: latency, tokens, cost
    treadle models get NAME     download an embedded model

Uses treadle.models; configures nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TextIO

from treadle.apps.console import exit_codes
from treadle.apps.console.console import (
    BOLD,
    DIM,
    add_style,
    command,
    get_width,
    print_line,
    wrap_line,
)
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.load import load_settings
from treadle.core.contracts.model import ModelCard, ModelOptions, ModelRequest, Reply
from treadle.core.extras import format_install_command, is_installed, require_extra
from treadle.core.transcript import AssistantItem, Transcript, to_user_item
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import format_bytes, format_dollars
from treadle.models.catalog import card_for, list_models
from treadle.models.registry import (
    KNOWN_PROVIDERS,
    ProviderEntry,
    describe_access,
    find_url_problem,
    model,
)
from treadle.models.registry.default_model import DefaultModel, find_default_model
from treadle.models.registry.local_servers import LOCAL_SERVERS, LocalServer, find_local_servers

USAGE = """\
usage: treadle models [--all]        list the usable models (--all: every known model)
       treadle models test [NAME]    make one real call: latency, tokens, cost
       treadle models get NAME       download an embedded model

NAME is PROVIDER/MODEL (anthropic/claude-sonnet-5-5), a well-known model (gpt-6.1-sol), a provider
(anthropic), an alias of your settings, or embedded. Keys are read from the usual variables of the
providers."""

TEST_PROMPT = "Answer with the single word: ready"
ALL_SERVERS = (*LOCAL_SERVERS, "vllm")
TEST_TOKENS = 1_024  # enough for a model that thinks first


class ModelRow(NamedTuple):
    name: str
    source: str
    window: str
    price: str
    usable: bool


@command("treadle models", USAGE)
def run(arguments: list[str]) -> int:
    match arguments:
        case [] | ["list"]:
            work = _list_models(include_all=False)
        case ["--all" | "-a"]:
            work = _list_models(include_all=True)
        case ["test", *names] if len(names) <= 1 and not any(map(_is_option, names)):
            work = _test_model(names[0] if names else "")
        case ["get", name] if not _is_option(name):
            work = _download_model(name)
        case _:
            print(f"treadle models: invalid arguments: {' '.join(arguments)}", file=sys.stderr)
            print(USAGE, file=sys.stderr)
            return exit_codes.USAGE_ERROR
    return asyncio.run(work)


def _is_option(word: str) -> bool:
    return word.startswith("-")


# ------------------------------------------------------------------ the table


async def _list_models(include_all: bool) -> int:
    local = find_local_servers(names=ALL_SERVERS)
    servers, default = await asyncio.gather(local, find_default_model())
    rows = [*_list_hosted(include_all), *_list_local(servers), *_list_embedded()]
    rows.sort(key=lambda row: not row.usable)
    print_table(rows, default, sys.stdout)
    if any(row.name == default.model and not row.usable for row in rows):
        print("  It cannot be used: the table says why.")
    return exit_codes.SUCCESS


def _list_hosted(include_all: bool) -> Iterable[ModelRow]:
    for provider in KNOWN_PROVIDERS.values():
        if not provider.needs_key or (provider.name.endswith("-chat") and not include_all):
            continue
        is_ready, source, _ = describe_access(provider, os.environ)
        for name in _list_model_names(provider, include_all):
            card = card_for(f"{provider.name}/{name}", prices=True)
            yield _make_row(card, source, is_ready)
        if not provider.default_model:
            name = "DEPLOYMENT" if provider.server == "azure" else "MODEL"
            yield ModelRow(f"{provider.name}/{name}", source, "", "", is_ready)


def _list_model_names(provider: ProviderEntry, include_all: bool) -> list[str]:
    start = f"{provider.name}/"
    listed = [full.removeprefix(start) for full in list_models() if full.startswith(start)]
    if include_all and listed:
        return listed
    return [provider.default_model] if provider.default_model else []


def _list_local(servers: list[LocalServer]) -> Iterable[ModelRow]:
    answering = {server.provider: server for server in servers}
    for name in ALL_SERVERS:
        server = answering.get(name)
        if server is not None and server.models:
            for model_name in server.models:
                card = card_for(f"{name}/{model_name}")
                yield _make_row(card, f"{server.url} answers", usable=True)
            continue
        provider = KNOWN_PROVIDERS[name]
        hint = f"no server answers; set {provider.url_variables[0]}"
        hint = find_url_problem(provider, os.environ) or hint
        source = hint if server is None else f"{server.url} has no model yet"
        yield ModelRow(f"{name}/MODEL", source, "", "free", usable=False)


def _list_embedded() -> Iterable[ModelRow]:
    from treadle.models.embedded import ALL_WEIGHTS, list_available_weights
    from treadle.models.embedded.model import WINDOW

    available, window = list_available_weights(), f"{WINDOW:,}"
    for weights in ALL_WEIGHTS:
        usable = weights in available
        hint = f"treadle models get {weights.name} ({format_bytes(weights.size)})"
        if not is_installed("embedded"):
            hint = format_install_command(["embedded"])
        source = "on this machine" if usable else hint
        yield ModelRow(f"embedded/{weights.name}", source, window, "free", usable)


def _make_row(card: ModelCard, source: str, usable: bool) -> ModelRow:
    is_guess = card.is_assumed or card.input_price == 0
    window = f"~{card.window:,}" if is_guess else f"{card.window:,}"
    return ModelRow(card.name, source, window, format_price(card), usable)


def format_price(card: ModelCard) -> str:
    """Input and output in USD per million tokens."""
    if card.input_price is None or card.output_price is None:
        return "unknown"
    if card.input_price == card.output_price == 0:
        return "free"
    return f"${card.input_price:g} / ${card.output_price:g}"


def print_table(rows: list[ModelRow], default: DefaultModel, out: TextIO) -> None:
    """Usable models first; the default model is marked. Where the columns do not fit, a model has
    two lines."""
    head = ModelRow("MODEL", "FROM", "WINDOW", "$ IN / OUT PER MILLION", usable=True)
    lines = [head, *rows]
    widths = [max(len(str(row[column])) for row in lines) for column in range(3)]
    is_narrow = sum(widths) + 8 + max(len(row.price) for row in lines) > get_width(out)
    for row in rows if is_narrow else lines:
        mark = "*" if row.name == default.model else " "
        start = f"{mark} {row.name:{widths[0]}}  {row.source:{widths[1]}}"
        line = f"{start}  {row.window:>{widths[2]}}  {row.price}".rstrip()
        if is_narrow:
            price = {"": "", "free": "free", "unknown": "price unknown"}.get(
                row.price, f"{row.price} per million"
            )
            facts = (row.source, row.window and f"window {row.window}", price)
            line = f"{mark} {row.name}\n" + wrap_line(
                "      " + ", ".join(filter(None, facts)), 6, out
            )
        style = BOLD if row is head or mark == "*" else "" if row.usable else DIM
        print(add_style(escape_invisible(line, "\n"), style, out), file=out)
    print(file=out)
    print(wrap_line(f"* default model: {escape_invisible(default.summary)}", 2, out), file=out)


# ------------------------------------------------------------------ download


async def _download_model(name: str) -> int:
    from treadle.apps.console.embedded_setup import download_with_progress
    from treadle.models.embedded import find_weights, locate_weights

    weights = find_weights(name)
    require_extra("embedded")
    present = locate_weights(weights)
    if present is not None:
        print(f"{weights.title} is already downloaded: {present}")
        return exit_codes.SUCCESS
    await download_with_progress(weights)
    print(f"Downloaded {weights.title}: {locate_weights(weights)}")
    print(f"Use it with `--model embedded/{weights.name}`. {weights.note}")
    return exit_codes.SUCCESS


# ------------------------------------------------------------------ one real call


async def _test_model(name: str) -> int:
    if not name:
        default = await find_default_model()
        print_line(default.summary)
        name = default.model
    folder = Path.cwd()
    settings = load_settings(folder, is_trusted=lambda: is_trusted(folder))
    tested = model(name, aliases=settings.aliases)
    options = ModelOptions(max_tokens=TEST_TOKENS)
    request = ModelRequest(Transcript([to_user_item(TEST_PROMPT)]), options=options)
    started_at = time.monotonic()
    first: float | None = None
    reply: AssistantItem | None = None
    try:
        async for event in tested.stream(request):
            if first is None:
                first = time.monotonic() - started_at
            if isinstance(event, Reply):
                reply = event.item
    finally:
        await tested.aclose()
    if reply is None:  # only a model that breaks the contract
        print(f"treadle models: {tested.name} ended without a reply", file=sys.stderr)
        return exit_codes.ERROR
    _print_test_result(tested.name, reply, first or 0.0, time.monotonic() - started_at)
    return exit_codes.SUCCESS


def _print_test_result(name: str, reply: AssistantItem, first: float, total: float) -> None:
    """`first` is the time to the first event, `total` that of the call, in seconds."""
    usage = reply.usage
    text = " ".join(reply.text.split())
    text = text if len(text) <= 60 else text[:60] + "..."
    cached = f" ({usage.cache_read:,} from the cache)" if usage.cache_read else ""
    reasoning = f" ({usage.reasoning:,} for thinking)" if usage.reasoning else ""
    cost = "unknown" if usage.cost is None else format_dollars(usage.cost) if usage.cost else "free"
    print(f"{name} answers: {text!r}")
    print(f"  latency  {first:.2f} s to the first event, {total:.2f} s total")
    print(f"  tokens   {usage.total_input:,} in{cached}, {usage.output:,} out{reasoning}")
    print(f"  cost     {cost}")
