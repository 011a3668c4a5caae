"""Every provider of the table: a request and a reply, with only its variables set."""

from __future__ import annotations

import pytest

from tests.apps.program import run
from treadle.models.catalog import card_for
from treadle.models.provider_base.quirks import SERVERS, find_server
from treadle.models.registry import KNOWN_PROVIDERS, model
from treadle.models.registry.default_model import describe_card_briefly, find_default_model
from treadle.testing.provider import FakeReply, ProviderServer, ServerLimits

# Of the others there is nothing to set (embedded, recorded), or see ../cloud/test_cloud_models.py.
RUN = [one for one in KNOWN_PROVIDERS.values() if one.url_variables and one.kind != "cloud"]
CLOUDS = [one for one in RUN if one.needs_key and one.kind != "anthropic"]


def find_model(path: str) -> str:
    """The model in the path of Gemini's own interface."""
    return path.rpartition("/")[2].partition(":")[0]


@pytest.mark.parametrize("provider", RUN, ids=lambda one: one.name)
async def test_the_program_runs_with_only_its_variables(monkeypatch, provider):
    name = f"{provider.name}/{provider.default_model or 'some-model'}"
    limits = ServerLimits(extra_keys=frozenset({"reasoning", "thinking"}))  # OpenAI has not these
    async with ProviderServer((FakeReply("Hello."),), limits=limits) as server:
        if provider.key_variables:
            monkeypatch.setenv(provider.key_variables[0], "k")
        monkeypatch.setenv(provider.url_variables[0], f"{server.url}/v1")
        ran = await run(None, "-p", "hi", "--model", name)
        assert (ran.code, ran.out) == (0, "Hello.\n"), ran.err
        [request] = server.generation_requests
    assert name.partition("/")[2] in (request.json.get("model"), find_model(request.path))
    names = ("authorization", "api-key", "x-api-key", "x-goog-api-key")
    assert "k" in [request.headers.get(header, "")[-1:] for header in names]


@pytest.mark.parametrize("provider", CLOUDS, ids=lambda one: one.name)
async def test_its_key_alone_chooses_its_default_model(provider):
    chosen = await find_default_model({provider.key_variables[0]: "k"}, seconds=0.0)
    first = next(one for one in CLOUDS if one.key_variables == provider.key_variables)
    has_default = f"{first.name}/{first.default_model}"
    assert (
        chosen.model == has_default
        if first.default_model
        else not chosen.model.startswith(first.name)
    )


@pytest.mark.parametrize("row", SERVERS.values(), ids=lambda one: one.name)
def test_its_address_is_recognised(row):
    if row.host_suffixes and row.base_url:
        assert find_server(row.base_url) is row


@pytest.mark.parametrize(
    ("name", "window"),
    [("xai/grok-4.7", 500_000), ("zai/glm-5.3", 1_000_000), ("kimi/kimi-k3.1-pro", 1_048_576)],
)
def test_window_and_prices_of_a_model_that_is_only_in_the_price_list(name: str, window: int):
    card = model(
        name, environ={"XAI_API_KEY": "k", "ZAI_API_KEY": "k", "MOONSHOT_API_KEY": "k"}
    ).card
    assert (card.window, card.is_assumed) == (window, False)
    assert card.input_price
    assert card_for(name).is_assumed  # without the list


def test_a_model_and_its_price_fit_into_a_line_of_a_list():
    name = "anthropic/claude-sonnet-5-5"
    brief = describe_card_briefly(card_for(name))
    assert brief == "$2 in, $10 out per 1M tokens, window 1M"
    assert len(f"▸ {name}  {brief}") <= 80
