"""Keeps secrets out of tool results, hook answers, errors and displayed text.

    RedactingSource      tools whose output contains no secret of this process
    RedactingHook        a hook whose answers contain none (a goal is a hook, too)
    RedactingModel       a model whose errors contain none: a provider may quote a rejected key
    redact_for_display   removes everything that looks like a key, from text for the user or a log

Secrets of this process are found by lib/text/redaction, keys by their form in
models/secret_redactor. Commands get no keys in their environment (workspace/environment), and
their output is redacted before it is stored (workspace/supervisor).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

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
    get_hook_timeout,
)
from treadle.core.contracts.model import Model, ModelEvent, ModelRequest
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import Preview, Tool, ToolContext, ToolOutput
from treadle.core.contracts.wrapped import WrappedModel, WrappedSource, WrappedTool, open_stream
from treadle.core.errors import ModelError, ToolError, TreadleError
from treadle.core.transcript.content import Arguments, Text
from treadle.lib.text.redaction import find_secrets
from treadle.lib.text.redaction import redact as redact

if TYPE_CHECKING:
    from treadle.models.secret_redactor import SecretRedactor


def find_environment_secrets(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The values of the secret variables of this process, longest first."""
    return find_secrets(os.environ if environ is None else environ)


@lru_cache(maxsize=1)
def _get_redaction() -> SecretRedactor:
    from treadle.models.secret_redactor import SecretRedactor

    return SecretRedactor()


def redact_for_display(text: str) -> str:
    """The text without secrets of this process and without tokens of well-known forms."""
    return _get_redaction().redact_text(text)


def redact_source(source: ToolSource, secrets: tuple[str, ...]) -> ToolSource:
    return RedactingSource(source, secrets) if secrets else source


def redact_hooks(hooks: Sequence[Hook], secrets: tuple[str, ...]) -> Sequence[Hook]:
    return [RedactingHook(hook, secrets) for hook in hooks] if secrets else hooks


class RedactingSource(WrappedSource):
    """A source whose tools output no secret of this process."""

    def __init__(self, source: ToolSource, secrets: tuple[str, ...]) -> None:
        super().__init__(source)
        self._secrets = secrets
        self._source_tools: Sequence[Tool] | None = None
        self._tools: tuple[Tool, ...] = ()

    def tools(self) -> Sequence[Tool]:
        tools = self._source.tools()
        if tools is not self._source_tools:
            self._source_tools = tools
            self._tools = tuple(RedactingTool(tool, self._secrets) for tool in tools)
        return self._tools


class RedactingTool(WrappedTool):
    """A tool whose output, progress and errors are redacted."""

    def __init__(self, tool: Tool, secrets: tuple[str, ...]) -> None:
        super().__init__(tool)
        self._secrets = secrets

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        progress, secrets = context.report_progress, self._secrets
        context = msgspec.structs.replace(
            context, report_progress=lambda text: progress(redact(secrets, text))
        )
        try:
            return self._redact_output(await self._tool.call(arguments, context))
        except ToolError as error:
            self._raise_redacted(error)

    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        """The user approves exactly what will run; an error is for the model."""
        try:
            return await self._tool.preview(arguments, context)
        except ToolError as error:
            self._raise_redacted(error)

    def _raise_redacted(self, error: ToolError) -> NoReturn:
        text = str(error)
        redacted = redact(self._secrets, text)
        if redacted == text:
            raise error
        raise ToolError(redacted) from None

    def _redact_output(self, output: ToolOutput) -> ToolOutput:
        content = output.content
        parts = (Text(content),) if isinstance(content, str) else content
        texts = [output.display, *(part.text for part in parts if isinstance(part, Text))]
        if not any(secret in text for secret in self._secrets for text in texts):
            return output
        redacted = tuple(
            Text(redact(self._secrets, part.text)) if isinstance(part, Text) else part
            for part in parts
        )
        return msgspec.structs.replace(
            output,
            content=redact(self._secrets, content) if isinstance(content, str) else redacted,
            display=redact(self._secrets, output.display),
        )


class RedactingHook:
    """A hook whose reasons and added texts are redacted. Arguments that it sets for a call are
    meant for that call, and stay."""

    def __init__(self, hook: Hook, secrets: tuple[str, ...]) -> None:
        self._hook = hook
        self._secrets = secrets
        self.timeout = get_hook_timeout(hook)

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
    """The wrapped model, with secrets removed from its errors."""

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
