"""Writes src/treadle/models/price_list.json from the installed genai-prices: run by scripts/lock.

Only the providers whose models Treadle calls, and of each model only what price_list.py reads. One
model a line, so that a change of prices is a readable diff.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, Provider, StartDateConstraint, TieredPrices

from treadle.models.price_list import PRICE_FIELDS, PRICE_LIST_FILE

PROVIDERS = (
    *("anthropic", "openai", "openrouter", "google", "deepseek", "groq", "mistral", "azure"),
    *("x-ai", "zai", "moonshotai", "minimax", "cohere", "perplexity", "cerebras", "together"),
    *("fireworks", "ovhcloud", "voyageai"),
)


def main() -> int:
    PRICE_LIST_FILE.write_text("".join(format_price_list(datetime.now(UTC).date())))
    print(f"{PRICE_LIST_FILE.name}: {PRICE_LIST_FILE.stat().st_size // 1000} kB")
    return 0


def format_price_list(today: date) -> Iterator[str]:
    source = f"genai-prices {metadata.version('genai-prices')}"
    terms = next(file for file in metadata.files("genai-prices") or () if file.name == "LICENSE")
    license_text = " ".join(Path(str(terms.locate())).read_text().split())
    yield f'{{"source": {json.dumps(source)},\n"license": {json.dumps(license_text)},\n'
    yield '"providers": {\n'
    providers = sorted(find_providers().values(), key=lambda provider: provider.id)
    for provider in providers:
        fallbacks = to_json(provider.fallback_model_providers or [])
        yield f'"{provider.id}": {{"fallbacks": {fallbacks}, "models": [\n'
        rows = [to_json(to_row(model, today)) for model in provider.models]
        yield ",\n".join(rows) + "\n]}" + (",\n" if provider is not providers[-1] else "\n")
    yield "}}\n"


def to_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))  # each byte is in every installation


def find_providers() -> dict[str, Provider]:
    """The providers that Treadle calls, and those whose models they offer at the same prices."""
    known = {provider.id: provider for provider in get_snapshot().providers}
    names = {*PROVIDERS}
    for name in PROVIDERS:
        names.update(known[name].fallback_model_providers or ())
    return {name: known[name] for name in names}


def to_row(model: ModelInfo, today: date) -> list[Any]:
    row = [to_clause(model.match), list(list_prices(model, today))]
    return [*row, model.context_window] if model.context_window else row


def to_clause(match: Any) -> dict[str, Any]:
    """`ClauseStartsWith(starts_with='gpt')` -> `{"starts_with": "gpt"}`."""
    ((name, value),) = vars(match).items()
    name = name.rstrip("_")  # or_, and_
    return {name: [to_clause(clause) for clause in value] if name in ("or", "and") else value}


def list_prices(model: ModelInfo, today: date) -> Iterator[list[Any]]:
    """The prices of today and those that are announced: their first day, then PRICE_FIELDS."""
    conditions = model.prices if isinstance(model.prices, list) else []
    starts = {
        condition.constraint.start_date
        for condition in conditions
        if isinstance(condition.constraint, StartDateConstraint)
    }
    later = sorted(start for start in starts if start > today)
    for first_day in (today, *later):
        highest = find_highest_prices(model, first_day)
        if highest["input"] is not None and highest["output"] is not None:
            start = "" if first_day == today else first_day.isoformat()
            yield [start, *(highest[field] for field in PRICE_FIELDS)]


def find_highest_prices(model: ModelInfo, day: date) -> dict[str, float | None]:
    """The prices of a day: the highest of its hours."""
    begin = datetime.combine(day, time(0, 15), UTC)
    steps = range(48 if isinstance(model.prices, list) else 1)
    hours = [model.get_prices(begin + timedelta(minutes=30 * step)) for step in steps]
    found: dict[str, float | None] = {}
    for field in PRICE_FIELDS:
        values = [getattr(prices, f"{field}_mtok", None) for prices in hours]
        bases = [value.base if isinstance(value, TieredPrices) else value for value in values]
        found[field] = max((float(base) for base in bases if base is not None), default=None)
    if found["output"] is None and ("embed" in model.id or "voyage" in model.id):
        found["output"] = 0.0  # only the input of an embedding model is paid
    return found


if __name__ == "__main__":
    sys.exit(main())
