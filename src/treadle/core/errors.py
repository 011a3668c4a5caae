"""Every exception of the project, in one home.

    TreadleError
    ├── ModelError                 a provider could not or would not answer
    │   ├── RateLimited            429; may say when to come back
    │   ├── Overloaded             5xx, 529: theirs, and it passes
    │   ├── Unreachable            no connection: DNS, refused, TLS, proxy
    │   ├── StreamBroken           the answer stopped half-way, stalled, or was not the protocol
    │   ├── BadRequest             400: this very request will never be accepted
    │   │   └── ContextTooLong     it does not fit the window, or the body limit
    │   ├── AccessDenied           401, 403: the key
    │   ├── QuotaExhausted         the account has no money left
    │   ├── UnknownModel           404
    │   ├── EmptyReply             it ended without saying anything, twice
    │   └── OutputMismatch         its answer does not fit the type that was asked for
    ├── LoopError                  the loop was asked for what it cannot do
    │   ├── ApprovalPending        next() before every approval was resolved
    │   ├── DriverBusy             next() while another next() runs
    │   └── LawBroken              a mutator returned an unlawful transcript
    ├── ToolError                  raised by a tool: becomes an error result
    │   └── AuthRequired           the tool's server wants the user to log in
    ├── StoreError                 the session cannot be written or read
    │   ├── StoreFull              no space left
    │   ├── SessionBusy            another process has it open
    │   ├── SessionUnknown         there is no such session
    │   ├── SessionElsewhere       it belongs to another folder
    │   └── SessionTooNew          written by a newer version: read only
    ├── WorkspaceError             files or processes cannot be reached as asked
    └── ConfigError                a setting, rule or definition is wrong: file, line, what to do

A message says what happened, to what, and what to do next. A provider's errors become these
at the edge of its codec; nothing else raises ModelError.
"""

from __future__ import annotations


class TreadleError(Exception):
    """The root: catch this to catch everything the project raises on purpose."""


class ModelError(TreadleError):
    """A provider could not or would not answer."""

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


class RateLimited(ModelError):
    """Too many requests for now."""


class Overloaded(ModelError):
    """The provider has trouble of its own."""


class Unreachable(ModelError):
    """No connection could be made."""


class StreamBroken(ModelError):
    """The answer stopped half-way, stalled, or was not what the protocol says."""


class BadRequest(ModelError):
    """The provider refused the content of the request. Sending it again unchanged is useless.

    `position` and `part` name the refused part of the transcript, if known. `param`, `code` and
    `provider_message` are the fields of the provider's own error; each may be empty.
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
    ) -> None:
        super().__init__(message, provider=provider, status=status, request_id=request_id)
        self.position = position
        self.part = part
        self.param = param
        self.code = code
        self.provider_message = provider_message


class ContextTooLong(BadRequest):
    """The request does not fit the model's window or the provider's body limit."""


class AccessDenied(ModelError):
    """The key is missing, wrong, or not allowed to do this."""


class QuotaExhausted(ModelError):
    """The account has no money or quota left: waiting does not help."""


class UnknownModel(ModelError):
    """The provider does not know this model."""


class EmptyReply(ModelError):
    """The model ended without saying anything, also after it was asked again."""


class OutputMismatch(ModelError):
    """The answer does not fit the type that was asked for, also after it was told why."""


class LoopError(TreadleError):
    """The loop was asked for what it cannot do."""


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
    """A mutator returned a transcript that breaks a law; it was not taken over."""

    def __init__(self, mutator: str, law: str, problem: str) -> None:
        super().__init__(f"mutator {mutator} broke the law {law}: {problem}")
        self.mutator = mutator
        self.law = law


class ToolError(TreadleError):
    """Raised by a tool to tell the model what went wrong."""


class AuthRequired(ToolError):
    """The server behind the tool wants the user to log in; the host does that out of band."""

    def __init__(self, server: str, message: str) -> None:
        super().__init__(message)
        self.server = server


class StoreError(TreadleError):
    """The session cannot be written or read."""


class StoreFull(StoreError):
    """No space is left for the session."""


class SessionBusy(StoreError):
    """Another process has the session open."""


class SessionNotFound(StoreError):
    """There is no session of that name."""


class SessionInOtherFolder(StoreError):
    """The session belongs to another folder."""

    def __init__(self, session_id: str, folder: str) -> None:
        super().__init__(
            f"session {session_id} belongs to {folder}. Go there, or fork it here with "
            f"`treadle sessions fork {session_id}`."
        )
        self.folder = folder


class SessionTooNew(StoreError):
    """The session was written by a newer version and can only be read."""


class WorkspaceError(TreadleError):
    """Files or processes cannot be reached as asked."""


class ConfigError(TreadleError):
    """A setting, rule or definition is wrong."""
