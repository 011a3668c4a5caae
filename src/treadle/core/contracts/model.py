"""The contract of a model: one request in, one stream of events out.

A model is a codec for a provider, or a wrapper around another model. Retries, decisions, budgets
and history belong to the loop, not to a model. Used by core/loop/model_call.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from treadle.core.argument_checks import (
    DICT,
    FLAG,
    TEXT,
    Expected,
    SuggestingMeta,
    check_fields,
    list_of,
    number,
    optional,
    whole_number,
)
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import ConfigError
from treadle.core.events import Caller
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import AssistantItem, Metadata
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import CallPurpose, Usage

MIN_TASK_BUDGET = 20_000
SettleUsage = Callable[[Usage], None]

_COUNT = whole_number(0)
_CACHE_REQUEST: Mapping[str, Expected] = {
    "enabled": FLAG,
    "ttl": TEXT,
    "key": TEXT,
    "breakpoints": list_of(_COUNT, "positions"),
    "required": FLAG,
}
_MODEL_OPTIONS: Mapping[str, Expected] = {
    "max_tokens": optional(_COUNT),
    "temperature": optional(number("a number of 0 or more", lambda value: value >= 0)),
    "thinking": optional(
        Expected(
            lambda value: isinstance(value, str) or _COUNT.fits(value),
            "a number of tokens, or an effort such as auto, low, medium or high",
        )
    ),
    "stop": list_of(TEXT, "texts"),
    "tool_choice": TEXT,
    "output_schema": optional(DICT),
    "extra": DICT,
    "task_budget": optional(_COUNT),
    "web_search": FLAG,
    "top_p": optional(number("a number above 0, up to 1", lambda value: 0 < value <= 1)),
    "seed": optional(_COUNT),
    "parallel_calls": optional(FLAG),
    "service_tier": TEXT,
}


class CacheRequest(msgspec.Struct, frozen=True):
    """How the next request uses the provider's prompt cache.

    `breakpoints` are positions of items: the cache ends after these, instead of after the newest
    input. A provider without breakpoints ignores them; Anthropic has room for the last two.
    `required`: a model without a prompt cache is not called; the turn fails with CacheUnsupported.
    """

    enabled: bool = True
    ttl: str = "5m"
    key: str = ""
    breakpoints: tuple[int, ...] = ()
    required: bool = False

    def __post_init__(self) -> None:
        check_fields(self, _CACHE_REQUEST)
        if self.required and not self.enabled:
            raise ConfigError("the cache request is both required and not enabled; choose one")


class ModelOptions(msgspec.Struct, frozen=True, metaclass=SuggestingMeta):
    """Options for any model. A model ignores the options that it does not support."""

    max_tokens: int | None = None  # of the whole reply, with its thinking
    temperature: float | None = None
    # A budget in tokens; an effort: low, medium, high; auto: as the card says; none; None: as the
    # provider does without the option.
    thinking: int | str | None = None
    stop: tuple[str, ...] = ()
    tool_choice: str = "auto"  # auto, none, any, or a tool's name
    output_schema: dict[str, Any] | None = None
    extra: dict[str, Any] = {}  # merged into the provider's request as it is
    task_budget: int | None = None  # tokens for the whole task, which the model sees and plans with
    web_search: bool = False  # the provider may search the web, for models with the ability search
    top_p: float | None = None
    seed: int | None = None
    parallel_calls: bool | None = None  # False: at most one call in a reply
    service_tier: str = ""  # in the provider's words, such as flex or priority

    def __post_init__(self) -> None:
        check_fields(self, _MODEL_OPTIONS)
        if self.task_budget is not None and self.task_budget < MIN_TASK_BUDGET:
            problem = f"task_budget is {self.task_budget}; providers accept {MIN_TASK_BUDGET:,}"
            raise ConfigError(f"{problem} tokens or more")


class ModelRequest(msgspec.Struct, frozen=True):
    """All that a model receives. `quarantine` holds (item, part) pairs that must not be sent.

    `metadata` is the caller's, of this turn; a codec sends what its provider has a field for.
    `admit_probe` is awaited before each request with which a model searches for what its provider
    refuses. None: the request must not be sent; else a function to call once with what it used.
    """

    transcript: Transcript
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    options: ModelOptions = ModelOptions()
    cache: CacheRequest = CacheRequest()
    quarantine: frozenset[tuple[int, int]] = frozenset()
    session_id: str = ""
    turn_id: str = ""
    idempotency_key: str = ""  # the same for every attempt with the same content
    caller: Caller = "library"
    metadata: Metadata = {}
    purpose: CallPurpose = "turn"
    admit_probe: AdmitProbe | None = None


AdmitProbe = Callable[[ModelRequest], Awaitable[SettleUsage | None]]


class ModelCard(msgspec.Struct, frozen=True):
    """Limits, prices and abilities of a model. Prices are USD per million tokens; None: unknown."""

    name: str
    window: int = 128_000
    max_output: int = 8_192
    input_price: float | None = None
    output_price: float | None = None
    cache_read_price: float | None = None
    cache_write_price: float | None = None
    abilities: frozenset[str] = frozenset()
    note: str = ""  # one line for the user: what to expect of this model
    is_assumed: bool = False  # the limits are a guess: the catalog does not list this model
    default_output: int | None = None  # asked for without max_tokens or thinking; None: max_output
    thinking: str = ""  # what its maker recommends for agents: an effort, or a number of tokens
    thinking_off: str = ""  # what turns it off, or next to off; empty: nothing is sent
    verbosity: str = ""  # how much it says, as its maker's agent asks: low, medium
    efforts: tuple[str, ...] = ()  # of thinking that it takes; empty: not known
    sampling: tuple[float, float, int] | None = None  # temperature, top_p, top_k for agents


def compute_costs(
    card: ModelCard, usage: Usage, *, cache_write_1h: int = 0
) -> tuple[float, float] | None:
    """The cost of input and of output in USD, at the prices of the card; None if not known.

    Cache reads and writes without a price of their own cost as much as input. `cache_write_1h`
    counts the tokens of `usage.cache_write` with a lifetime of an hour, at twice the input price.
    """
    if card.input_price is None or card.output_price is None:
        return None
    per_input = card.input_price
    cache_write_1h = min(cache_write_1h, usage.cache_write)
    read = per_input if card.cache_read_price is None else card.cache_read_price
    write = per_input if card.cache_write_price is None else card.cache_write_price
    input_cost = (
        usage.input * per_input
        + usage.cache_read * read
        + (usage.cache_write - cache_write_1h) * write
        + cache_write_1h * 2 * per_input
    )
    return input_cost / 1e6, usage.output * card.output_price / 1e6


def add_cost(usage: Usage, card: ModelCard) -> Usage:
    """The usage with its cost: as the model gave it, or from the card, which may have no price."""
    if usage.cost != 0 or not usage.total:
        return usage
    costs = compute_costs(card, usage)
    return msgspec.structs.replace(usage, cost=None if costs is None else sum(costs))


class ModelTextDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of text. `by`: see Text; a piece of the engine is a whole text."""

    text: str
    by: str = ""


class ModelThinkingDelta(msgspec.Struct, frozen=True, gc=False):
    text: str


class ModelToolCallBegan(msgspec.Struct, frozen=True, gc=False):
    id: str
    name: str


class ModelToolCallDelta(msgspec.Struct, frozen=True, gc=False):
    id: str
    text: str


class ModelToolCallRequested(msgspec.Struct, frozen=True):
    """The call is complete. A safe call may start now, while the stream continues."""

    call: ToolCall


class ModelUsageUpdated(msgspec.Struct, frozen=True):
    """Usage so far. The usage in the reply is the final one."""

    usage: Usage


class PartQuarantined(msgspec.Struct, frozen=True):
    """The provider rejected this part. The request was sent again without it."""

    position: int
    part: int
    reason: str


class ModelNotified(msgspec.Struct, frozen=True, gc=False):
    """One line for the user."""

    text: str


class Reply(msgspec.Struct, frozen=True):
    """The complete reply: exactly one, and always the last event."""

    item: AssistantItem


ModelEvent = (
    ModelTextDelta
    | ModelThinkingDelta
    | ModelToolCallBegan
    | ModelToolCallDelta
    | ModelToolCallRequested
    | ModelUsageUpdated
    | PartQuarantined
    | ModelNotified
    | Reply
)


class Model(Protocol):
    """Answers requests.

    Promises of an implementation:
    - `stream` ends with exactly one Reply, or raises a ModelError. It never ends without either.
    - Every call in the reply was announced before by one ModelToolCallRequested, and only one.
    - A reply that was cut by the output limit has stop "max_tokens" and holds no incomplete call.
    - Cancelling the consumer closes the connection at once and leaves nothing open.
    - One instance serves many streams at the same time.
    A model must not retry, keep history between requests, or write to the transcript.
    """

    @property
    def name(self) -> str:
        """Provider and model, as in `anthropic/claude-sonnet-5-5`."""

    @property
    def card(self) -> ModelCard: ...

    @property
    def fallback(self) -> Model | None:
        """The model to use when this one cannot answer."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]: ...

    async def aclose(self) -> None: ...


# Makes a call through the gateway of a session (core/loop/model_gateway.py): admitted by its gates,
# retried, and counted. Raises ModelError, and CallNotAdmitted at a limit.
CallModel = Callable[[ModelRequest, CallPurpose, Model], Awaitable[AssistantItem]]
