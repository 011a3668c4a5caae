"""Every exception of the project.

    TreadleError
    ├── ModelError                 a provider did not answer
    │   ├── RateLimited            429; may have `retry_after`
    │   ├── Overloaded             5xx, 529: a transient error of the provider
    │   ├── Unreachable            no connection: DNS, refused, TLS, proxy
    │   ├── StreamBroken           the stream ended early, stalled, or broke the protocol
    │   │   └── ReplyTimedOut      no answer, or only pings, for as long as was allowed
    │   ├── BadRequest             400: the same request will never be accepted
    │   │   └── ContextTooLong     larger than the window, or than the body limit
    │   ├── AccessDenied           401, 403: the key is missing, wrong or not allowed
    │   ├── QuotaExhausted         the account has no credit left
    │   ├── UnknownModel           404
    │   ├── CacheUnsupported       a prompt cache is required, and the model has none
    │   ├── EmptyReply             the reply was empty, also at the second attempt
    │   └── OutputMismatch         the answer does not fit the requested type
    ├── OutputMissing              the run ended before it gave the requested output
    ├── LoopError                  the driver was used wrongly, or a mutator is wrong
    │   ├── ApprovalPending        next() before every approval is resolved
    │   ├── DriverBusy             next() while another next() runs
    │   ├── NothingToAnswer        a run without a prompt, and the last turn is finished
    │   ├── CallNotAdmitted        a gate forbids a model call that is no reply of a turn
    │   └── LawBroken              a mutator returned a transcript that breaks a law
    ├── InputBlocked               a hook blocked the message; `reason` is the hook's
    ├── ToolError                  raised by a tool: becomes an error result
    │   └── AuthRequired           the server of the tool needs a login by the user
    ├── StoreError                 the session cannot be written or read
    │   ├── StoreFull              no space left
    │   ├── StoreRefused           it does not take this content, however often it is tried
    │   ├── SessionBusy            another process, or another run of this one, has it open
    │   ├── SessionNotFound        there is no such session
    │   ├── SessionInOtherFolder   the session belongs to another folder
    │   └── SessionTooNew          written by a newer version: can only be read
    ├── WorkspaceError             a file or process operation failed; see its `kind`
    └── ConfigError                a setting, rule or definition is wrong: file, line, remedy
        └── MissingExtra           a feature needs packages that are not installed

A message says what happened, to what, and what to do next. Models translate the errors of their
provider to these (models/provider_base/error_map.py); only models raise ModelError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from treadle.core.events import TerminalReason
    from treadle.core.transcript.transcript import Transcript
    from treadle.core.transcript.usage import Usage

WorkspaceErrorKind = Literal["other", "not_found", "is_folder", "not_folder", "bad_cwd", "outside"]


class TreadleError(Exception):
    """The root of all exceptions that the project raises on purpose.

    One that leaves a run carries it: `transcript`, `usage` and `cost` are those of the run so far,
    `session_id` is that of its session. They are None and "" elsewhere.
    """

    transcript: Transcript | None = None
    usage: Usage | None = None
    session_id: str = ""

    @property
    def cost(self) -> float | None:
        """In USD; None when a price is not known."""
        return self.usage.cost if self.usage is not None else None


class ModelError(TreadleError):
    """A provider did not answer.

    `retry_after` is the wait that it announced, in seconds. `max_wait` is set by the loop if that
    is longer than the agent waits; then the message names both. `attempts`: how often the loop
    tried; more than one are in the message.
    """

    max_wait: float | None = None
    attempts: int = 1

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status
        self.retry_after = retry_after
        self.request_id = request_id

    def __str__(self) -> str:
        message = super().__str__()
        if self.attempts > 1:
            end = "" if message.endswith((".", "!", "?", ")")) else "."
            message += f"{end} Tried {self.attempts} times."
        if self.max_wait is None or self.retry_after is None:
            return message
        return (
            f"{message} The provider asks to wait {self.retry_after:.0f} s, and retry_max_wait is "
            f"{self.max_wait:.0f} s: try again then, or choose another model."
        )


class RateLimited(ModelError):
    """The provider refused the request because of a rate limit."""


class Overloaded(ModelError):
    """The provider is overloaded or has an internal error."""


class Unreachable(ModelError):
    """No connection could be made."""


class StreamBroken(ModelError):
    """The stream ended early, stalled, or did not follow the protocol."""


class ReplyTimedOut(StreamBroken):
    """The provider accepted the request, and sent no content within the time limit."""


class BadRequest(ModelError):
    """The provider rejected the request. `position` and `part` name the rejected part, if known.

    `tool` is the rejected tool, if the error names one. `param`, `code` and `provider_message` are
    fields of the provider's own error; each may be empty.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        status: int | None = None,
        request_id: str = "",
        position: int | None = None,
        part: int | None = None,
        param: str = "",
        code: str = "",
        provider_message: str = "",
        tool: str = "",
    ) -> None:
        super().__init__(message, provider=provider, status=status, request_id=request_id)
        self.position = position
        self.part = part
        self.param = param
        self.code = code
        self.provider_message = provider_message
        self.tool = tool


class ContextTooLong(BadRequest):
    """The request does not fit the model's window or the provider's body limit."""


class AccessDenied(ModelError):
    """The key is missing, wrong, or not allowed to do this."""


class QuotaExhausted(ModelError):
    """The account has no money or quota left: waiting does not help."""


class UnknownModel(ModelError):
    """The provider does not know this model."""


class CacheUnsupported(ModelError):
    """The request requires a prompt cache, and the model has none; nothing was sent."""


class EmptyReply(ModelError):
    """The reply was empty, also at the second attempt."""


class OutputMismatch(ModelError):
    """The answer does not fit the requested type, also after the model was shown the error.

    `problem` says what did not fit, `answer` is what the model said last.
    """

    transcript: Transcript
    usage: Usage

    def __init__(self, message: str, *, provider: str = "", problem: str, answer: str) -> None:
        super().__init__(message, provider=provider)
        self.problem = problem
        self.answer = answer


class OutputMissing(TreadleError):
    """The run ended before it gave an answer of the output type. `reason` is that of the turn."""

    transcript: Transcript
    usage: Usage

    def __init__(self, reason: TerminalReason, *, detail: str = "") -> None:
        more = f" ({detail})" if detail else ""
        super().__init__(f"the run ended with {reason} before it gave its answer{more}")
        self.reason = reason


class LoopError(TreadleError):
    """The driver was used wrongly, or a mutator is wrong."""


class NothingToAnswer(LoopError):
    """A run has no prompt and no unfinished turn, or a hook blocked the prompt."""


class CallNotAdmitted(LoopError):
    """A gate, such as a budget, forbids a model call that is no reply of a turn."""


class ApprovalPending(LoopError):
    """next() was called before every approval was resolved."""

    def __init__(self, call_ids: tuple[str, ...]) -> None:
        super().__init__(
            f"{len(call_ids)} approval(s) are waiting: {', '.join(call_ids)}. "
            "Approve or deny each before calling next()."
        )
        self.call_ids = call_ids


class DriverBusy(LoopError):
    """next() was called while another next() of the same driver was running."""


class LawBroken(LoopError):
    """A mutator returned a transcript that breaks a law; the transcript was discarded."""

    def __init__(self, mutator: str, law: str, problem: str) -> None:
        super().__init__(f"mutator {mutator} broke the law {law}: {problem}")
        self.mutator = mutator
        self.law = law


class InputBlocked(TreadleError):
    """A hook blocked the message, so there is nothing to answer. `reason` is the hook's."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"a hook blocked the message: {reason}")
        self.reason = reason


class ToolError(TreadleError):
    """Raised by a tool; the model reads the message as an error result, whose data is `data`."""

    data: dict[str, Any] | None = None


class AuthRequired(ToolError):
    """The server of the tool needs a login; the host does that outside of the turn."""

    def __init__(self, server: str, message: str, *, url: str = "", challenge: str = "") -> None:
        super().__init__(message)
        self.server = server
        self.url = url
        self.challenge = challenge  # the server's own words
        self.data = {"auth_required": {"server": server, "url": url, "challenge": challenge}}


class ToolsUnavailable(TreadleError):
    """A source of tools that the agent needs cannot be opened: no request was sent."""


class StoreError(TreadleError):
    """The session cannot be written or read."""


class StoreFull(StoreError):
    """No space is left for the session."""


class StoreRefused(StoreError):
    """The store does not take this content: trying again does not help."""


class SessionBusy(StoreError):
    """Another process, or another run of this process, has the session open."""


class SessionNotFound(StoreError):
    """There is no session with this id."""


class SessionInOtherFolder(StoreError):
    """The session belongs to another folder."""

    def __init__(self, session_id: str, folder: str) -> None:
        super().__init__(
            f"session {session_id} belongs to {folder}. Go there, or fork it here with "
            f"`treadle sessions fork {session_id}`."
        )
        self.folder = folder


class SessionTooNew(StoreError):
    """The session has a newer format and can only be read."""


class WorkspaceError(TreadleError):
    """A file or process operation failed. Code decides by `kind`.

    not_found, is_folder, not_folder   of the path that was asked for
    bad_cwd                            the working directory of a command cannot be entered
    outside                            the path is in no folder of the workspace
    """

    def __init__(self, message: str, *, kind: WorkspaceErrorKind = "other") -> None:
        super().__init__(message)
        self.kind = kind


class ConfigError(TreadleError):
    """A setting, rule or definition is wrong."""


class MissingExtra(ConfigError):
    """A feature needs an extra of the package that is not installed (core/extras.py)."""

    def __init__(self, message: str, *, extra: str) -> None:
        super().__init__(message)
        self.extra = extra


def error_message(error: BaseException) -> str:
    """`str(error)`, also of an exception whose `__str__` raises."""
    try:
        return str(error)
    except Exception as problem:  # noqa: BLE001 - code of others
        return f"its message cannot be read, because __str__ raised {type(problem).__name__}"


def error_text(error: BaseException) -> str:
    """The text of an error: `ValueError: bad input`; only the message for a TreadleError."""
    text = error_message(error)
    if isinstance(error, TreadleError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
