"""The model of Bedrock's Converse interface and its codec, for models without another format.

The address and the authorization come with a client (models/cloud), because a request of AWS is
signed as a whole: `model("bedrock/amazon.nova-pro-v1:0")` makes both.
"""

from __future__ import annotations

from urllib.parse import quote

from treadle.core.contracts.model import Model, ModelCard, ModelOptions, ModelRequest
from treadle.core.errors import AccessDenied, BadRequest
from treadle.lib.http.timeouts import Timeouts
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.models.bedrock_converse.decoding import ConverseDecoder
from treadle.models.bedrock_converse.encoding import ORIGIN, ConverseEncoder, encode_head
from treadle.models.catalog import card_for
from treadle.models.provider_base.codec import EncodedRequest
from treadle.models.provider_base.encoding import encode_transcript, locate_block
from treadle.models.provider_base.error_map import ProviderInfo, has_field
from treadle.models.provider_base.http_model import HTTPModel

_PART_REFERENCE = compile_lazily(r"messages\.(\d+)(?:\.member)?\.content\.(\d+)")


class ConverseCodec:
    """The format of Converse."""

    origin = ORIGIN

    def __init__(self, model: str, card: ModelCard, provider: ProviderInfo | None = None) -> None:
        self._model = model
        self.card = card
        self._encoder = ConverseEncoder(card.name)
        self.provider = provider or ProviderInfo(ORIGIN, model)

    def endpoint(self) -> str:
        return ""  # the client has it

    def auth_headers(self) -> dict[str, str]:
        raise AccessDenied(
            'Converse needs a client that signs its requests: model("bedrock/…") makes one',
            provider=ORIGIN,
        )

    def encode_request(self, request: ModelRequest) -> EncodedRequest:
        history = encode_transcript(self._encoder, request.transcript, request.quarantine)
        head = encode_head(self.card, request, history.has_calls)
        path = f"/model/{quote(self._model, safe='')}/converse-stream"
        body = [head, *history.messages(), b"]}"]
        return EncodedRequest(path, {"content-type": "application/json"}, body)

    def has_effort_field(self, options: ModelOptions) -> bool:
        return False

    def create_decoder(self, request: ModelRequest) -> ConverseDecoder:
        return ConverseDecoder(self.provider, self.card, request)

    def split_reply(self, body: bytes) -> list[tuple[bytes, bytes]]:
        return [(b"whole", body)] if has_field(body, "output") else []

    def adapt(self, refusal: BadRequest) -> str:
        return ""

    def locate_part(self, request: ModelRequest, error: BadRequest) -> tuple[int, int] | None:
        match = _PART_REFERENCE.search(error.provider_message)
        if match is None:
            return None
        numbers = (int(match[1]), int(match[2]))
        return locate_block(self._encoder, request.transcript, request.quarantine, *numbers)


class BedrockConverse(HTTPModel):
    """A model of Bedrock by its Converse interface; `client` signs the requests."""

    def __init__(
        self,
        model: str,
        *,
        client: object,
        fallback: Model | None = None,
        card: ModelCard | None = None,
        timeouts: Timeouts | None = None,
        provider: ProviderInfo | None = None,
    ) -> None:
        card = card or card_for(f"bedrock/{model}")
        codec = ConverseCodec(model, card, provider)
        super().__init__(codec, client, fallback, timeouts or Timeouts(idle=600.0))
