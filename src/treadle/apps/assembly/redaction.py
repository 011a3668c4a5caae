"""Secrets stay where they are: what tools bring in, and what is shown, without them.

    Discreet        tools whose output holds no key of this process: neither the model, nor the
                    session, nor anybody who watches gets to see one
    DiscreetHook    a hook whose words hold none; a goal's command is one, too
    Reticent        a model whose errors hold none: a provider may quote the key that it refused
    shown           a text for a person or a log, without what looks like a key of anybody's

Which of our values are keys is core/secrets' business, what a key of others looks like
models/redaction's. Commands have no keys in their environment at all (workspace/environment), and
what they print is looked through before any of it is kept (workspace/keeper).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from treadle.core.contracts.hook import (
    AddContext,
    Block,
    Change,
    Hook,
    HookAnswer,
    HookInput,
    HookPoint,
    Permit,
)
from treadle.core.contracts.model import Model, ModelEvent, ModelRequest
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import (
    Tool,
    ToolContext,
    ToolOutput,
)
from treadle.core.contracts.wrapped import WrappedModel, WrappedTool, open_stream
from treadle.core.errors import ModelError, ToolError, TreadleError
from treadle.core.redaction import find_secrets, redact
from treadle.core.transcript.content import Arguments, Text

if TYPE_CHECKING:
    from treadle.models.secret_redactor import SecretRedactor

__all__ = [
    "RedactingSource",
    "RedactingHook",
    "RedactingModel",
    "find_environment_secrets",
    "redact_for_display",
    "redact",
]


def find_environment_secrets(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The values of this process's variables that are secret, longest first."""
    return find_secrets(os.environ if environ is None else environ)


@lru_cache(maxsize=1)
def _get_redaction() -> SecretRedactor:
    from treadle.models.secret_redactor import SecretRedactor

    return SecretRedactor()


def redact_for_display(text: str) -> str:
    """The text without keys of this process and without well-known shapes of tokens."""
    return _get_redaction().redact_text(text)


class RedactingSource:
    """A source whose tools tell no secret of this process."""

    def __init__(self, source: ToolSource, secrets: tuple[str, ...]) -> None:
        self._source = source
        self._secrets = secrets
        self._source_tools: Sequence[Tool] | None = None
        self._tools: tuple[Tool, ...] = ()

    @property
    def name(self) -> str:
        return self._source.name

    def tools(self) -> Sequence[Tool]:
        offered = self._source.tools()
        if offered is not self._source_tools:
            self._source_tools = offered
            self._tools = tuple(RedactingTool(tool, self._secrets) for tool in offered)
        return self._tools

    def instructions(self) -> str:
        return self._source.instructions()

    async def open(self) -> None:
        await self._source.open()

    async def aclose(self) -> None:
        await self._source.aclose()


class RedactingTool(WrappedTool):
    """A tool whose words are looked through before anybody hears them."""

    def __init__(self, tool: Tool, secrets: tuple[str, ...]) -> None:
        super().__init__(tool)
        self._secrets = secrets

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        progress, secrets = context.report_progress, self._secrets
        quiet = msgspec.structs.replace(
            context, report_progress=lambda text: progress(redact(secrets, text))
        )
        try:
            return self._redact_output(await self._tool.call(arguments, quiet))
        except ToolError as error:
            text = str(error)
            if redact(secrets, text) == text:
                raise
            raise ToolError(redact(secrets, text)) from None

    def _redact_output(self, output: ToolOutput) -> ToolOutput:
        texts = [output.display]
        if isinstance(output.content, str):
            texts.append(output.content)
        else:
            texts += [part.text for part in output.content if isinstance(part, Text)]
        if not any(secret in text for secret in self._secrets for text in texts):
            return output
        content = output.content
        if isinstance(content, str):
            content = redact(self._secrets, content)
        else:
            content = tuple(
                Text(redact(self._secrets, part.text)) if isinstance(part, Text) else part
                for part in content
            )
        display = redact(self._secrets, output.display)
        return msgspec.structs.replace(output, content=content, display=display)


class RedactingHook:
    """A hook whose reasons and additions are looked through. Arguments that it gives to a call are
    meant for that call, and stay."""

    def __init__(self, hook: Hook, secrets: tuple[str, ...]) -> None:
        self._hook = hook
        self._secrets = secrets

    @property
    def points(self) -> frozenset[HookPoint]:
        return self._hook.points

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        try:
            return self._redact_answer(await self._hook.run(hook_input))
        except TreadleError as error:
            error.args = (redact(self._secrets, str(error)),)
            raise

    def _redact_answer(self, answer: HookAnswer | None) -> HookAnswer | None:
        match answer:
            case Block(reason=reason) | Permit(reason=reason):
                return msgspec.structs.replace(answer, reason=redact(self._secrets, reason))
            case AddContext(text=text) | Change(text=str(text)):
                return msgspec.structs.replace(answer, text=redact(self._secrets, text))
        return answer


class RedactingModel(WrappedModel):
    """Everything is the wrapped model's, but its errors quote no secret."""

    def __init__(self, model: Model, secrets: tuple[str, ...]) -> None:
        super().__init__(model)
        self._secrets = secrets

    @property
    def fallback(self) -> Model | None:
        fallback = self._model.fallback
        return RedactingModel(fallback, self._secrets) if fallback is not None else None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        try:
            async with open_stream(self._model, request) as events:
                async for event in events:
                    yield event
        except ModelError as error:
            error.args = (redact(self._secrets, str(error)),)
            raise
