"""Prices and windows of models that the table of the catalog does not have: price_list.json.

The file is a part of genai-prices, written by scripts/update_prices.py: the package itself would
bring ten others. A wheel has it compressed. Used by catalog.py; nothing here uses the network.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

PRICE_LIST_FILE = Path(__file__).with_name("price_list.json")
PRICE_FIELDS = ("input", "output", "cache_read", "cache_write")

_COMPACT_DATE = re.compile(r"-(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")
_TEXT_CLAUSES: Mapping[str, Callable[[str, str], bool]] = {
    "equals": lambda name, text: name == text.lower(),
    "starts_with": lambda name, text: name.startswith(text.lower()),
    "ends_with": lambda name, text: name.endswith(text.lower()),
    "contains": lambda name, text: text.lower() in name,
    "regex": lambda name, text: re.search(text, name) is not None,
}


class _ListedModel(msgspec.Struct, frozen=True, array_like=True):
    """`prices`: rows of the first day ("" for always) and the values of PRICE_FIELDS. `window` in
    tokens; 0 if it is not known."""

    match: dict[str, Any]
    prices: list[tuple[str, float, float, float | None, float | None]]
    window: int = 0


class _ListedProvider(msgspec.Struct, frozen=True):
    """`fallbacks`: providers whose models it offers at their prices."""

    fallbacks: list[str]
    models: list[_ListedModel]


class _PriceList(msgspec.Struct, frozen=True):
    providers: dict[str, _ListedProvider]


class ListedCard(msgspec.Struct, frozen=True):
    """`prices` of today in USD per million tokens, by PRICE_FIELDS; `window`: 0 if not known."""

    prices: dict[str, float | None]
    window: int


@lru_cache(maxsize=256)
def find_listed(provider: str, model: str) -> ListedCard | None:
    """What is listed about a model; None if it has no price today."""
    name = model.lower()
    found = _find_model(provider, name)
    if found is None and (dashed := _COMPACT_DATE.sub(r"-\1-\2-\3", name)) != name:
        found = _find_model(provider, dashed)
    if found is None:
        return None
    today = datetime.now(UTC).date().isoformat()
    started = [prices for first_day, *prices in found.prices if first_day <= today]
    if not started:
        return None
    return ListedCard(dict(zip(PRICE_FIELDS, started[-1], strict=True)), found.window)


def _find_model(provider: str, name: str) -> _ListedModel | None:
    providers = _load_price_list().providers
    seller = providers.get(provider)
    if seller is None:
        return None
    for listed in (seller, *(providers[fallback] for fallback in seller.fallbacks)):
        for model in listed.models:
            if _is_match(model.match, name):
                return model
    return None


def _is_match(clause: Mapping[str, Any], name: str) -> bool:
    ((kind, value),) = clause.items()
    if kind == "or":
        return any(_is_match(one, name) for one in value)
    if kind == "and":
        return all(_is_match(one, name) for one in value)
    return _TEXT_CLAUSES[kind](name, value)


@lru_cache(maxsize=1)
def _load_price_list() -> _PriceList:
    data = PRICE_LIST_FILE.read_bytes()
    text = data if data.startswith(b"{") else zlib.decompress(data)
    return msgspec.json.decode(text, type=_PriceList)
