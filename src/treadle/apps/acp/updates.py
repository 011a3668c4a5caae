"""The events of a session as updates of the protocol, and its history when it is loaded.

An Observer: it decides nothing and waits for nothing. Todos become the plan, and their calls are
not shown. Calls of child agents are lines of the call that started the child. Used by session.py.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    Cost,
    ImageContentBlock,
    TerminalToolCallContent,
    TextContentBlock,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    UsageUpdate,
    UserMessageChunk,
)

from treadle.apps.acp import tool_calls
from treadle.apps.acp.outbox import Outbox
from treadle.core.events import (
    AuthenticationRequired,
    ChildEvent,
    Event,
    ModelChanged,
    Notified,
    ReplyDiscarded,
    RequestStarted,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
    ToolCallBegan,
    ToolCallRequested,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    UsageUpdated,
    WarningRaised,
    unwrap,
)
from treadle.core.transcript.content import Image, Text, Thinking, ToolCall
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem, UserItem
from treadle.core.transcript.usage import REPLY_PURPOSES, Usage

MAX_CHILD_LINES = 20


class SessionUpdates:
    """`get_usage` and `get_window` give the usage of the session and the window of its model."""

    def __init__(
        self,
        outbox: Outbox,
        cwd: str,
        get_usage: Callable[[], Usage],
        get_window: Callable[[], int],
    ) -> None:
        self._outbox = outbox
        self.cwd = cwd  # of the next command, which relative paths start from
        self._get_usage = get_usage
        self._get_window = get_window
        self._calls: dict[str, ToolCall] = {}  # requested, and without a result
        self._begun: list[str] = []  # by the current request
        self._output: dict[str, str] = {}
        self._terminals: dict[str, str] = {}
        self._child_lines: dict[str, list[str]] = {}
        self._child_calls: set[str] = set()  # shown, because they needed an approval

    # --- as an observer ------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        match event:
            case TextDelta(text=text, by=by):
                self._outbox.put(_make_message(f"engine: {text}\n\n" if by else text))
            case ThinkingDelta(text=text):
                self._outbox.put(_make_thought(text))
            case RequestStarted():
                self._begun = []
            case ToolCallBegan(call_id=call_id, name=name):
                self._begun.append(call_id)
                self._begin_call(call_id, name)
            case ToolCallRequested(call=call):
                self._request_call(call)
            case ToolStarted():
                self._start_call(event)
            case ToolProgress(call_id=call_id, text=text):
                self._add_output(call_id, text)
            case ToolFinished(call_id=call_id, name=name) if not tool_calls.is_plan(name):
                status: ToolCallStatus = "failed" if event.is_error else "completed"
                self._update_call(call_id, status=status)
            case ReplyDiscarded(chars=chars):
                self._discard_reply(chars)
            case RetryScheduled(delay=delay, reason=reason):
                self._outbox.put(_make_thought(f"\n{reason}; next attempt in {delay:.0f} s\n"))
            case UsageUpdated(last=last, purpose=purpose) if purpose in REPLY_PURPOSES:
                self._show_usage(last)
            case WarningRaised(text=text) | Notified(text=text):
                self.show_note(text)
            case ModelChanged(old=old, new=new, reason=reason):
                self.show_note(f"{new} is used now instead of {old}: {reason}")
            case AuthenticationRequired(server=server, url=url):
                self.show_note(f"the MCP server {server} needs a login: {url}")
            case ChildEvent(call_id=call_id, child=child):
                self._on_child_event(call_id, child)
            case _:
                pass

    def on_item(self, position: int, item: Item) -> None:
        if isinstance(item, ToolResultItem):
            self._finish_call(item)

    # --- calls ---------------------------------------------------------------------------

    def _begin_call(self, call_id: str, name: str) -> None:
        if not tool_calls.is_plan(name):
            kind = tool_calls.get_kind(name)
            self._outbox.put(
                ToolCallStart(
                    session_update="tool_call",
                    tool_call_id=call_id,
                    title=name,
                    kind=kind,
                    status="pending",
                )
            )

    def _request_call(self, call: ToolCall) -> None:
        self._calls[call.id] = call
        if call.id not in self._begun:
            self._begin_call(call.id, call.name)
        if not tool_calls.is_plan(call.name):
            self._update_call(
                call.id,
                title=tool_calls.make_title(call.name, call.arguments),
                raw_input=call.arguments,
                locations=tool_calls.find_locations(call.arguments, self.cwd) or None,
            )

    def _start_call(self, event: ToolStarted) -> None:
        name, call = event.name, self._calls.get(event.call_id)
        if tool_calls.is_plan(name):
            return
        arguments = call.arguments if call is not None else None
        title = tool_calls.make_title(name, arguments, event.summary)
        kind = tool_calls.to_editor_kind(event.kind)  # of the tool that a forwarded call runs
        self._update_call(event.call_id, status="in_progress", title=title, kind=kind)

    def _add_output(self, call_id: str, text: str) -> None:
        if call_id in self._terminals:
            return  # the editor shows it
        shown = (self._output.get(call_id, "") + text)[-tool_calls.MAX_SHOWN_CHARS :]
        self._output[call_id] = shown
        self._update_call(call_id, content=tool_calls.make_output(shown))

    def _finish_call(self, item: ToolResultItem) -> None:
        call = self._calls.pop(item.call_id, None)
        self._output.pop(item.call_id, None)
        self._child_lines.pop(item.call_id, None)
        terminal = self._terminals.pop(item.call_id, None)
        if tool_calls.is_plan(item.name):
            self._show_plan(call, item)
            return
        fields = make_result_fields(item, self.cwd)
        if terminal is not None:
            fields.pop("content")  # the terminal has it
        self._update_call(item.call_id, **fields)
        is_command = tool_calls.get_kind(item.name) == "execute"
        if is_command and isinstance(cwd := (item.data or {}).get("cwd"), str):
            self.cwd = cwd

    def _show_plan(self, call: ToolCall | None, item: ToolResultItem) -> None:
        entries = tool_calls.parse_plan(call.arguments if call is not None else None)
        if entries is not None and not item.is_error:
            self._outbox.put(AgentPlanUpdate(session_update="plan", entries=entries))

    def attach_terminal(self, command: str, terminal_id: str) -> None:
        """Show the editor's terminal in the call that runs this command."""
        for call_id, call in self._calls.items():
            if call_id not in self._terminals and (call.arguments or {}).get("command") == command:
                self._terminals[call_id] = terminal_id
                content = TerminalToolCallContent(type="terminal", terminal_id=terminal_id)
                self._update_call(call_id, content=[content])
                return

    def _discard_reply(self, chars: int) -> None:
        for call_id in self._begun:
            self._calls.pop(call_id, None)
            note = [tool_calls.make_text("The reply with this call broke off; it is repeated.")]
            self._update_call(call_id, status="failed", content=note)
        if chars:
            self.show_note("The reply broke off. The text since the last step is repeated.")

    def _update_call(self, call_id: str, **fields: object) -> None:
        given = {name: value for name, value in fields.items() if value is not None}
        self._outbox.put(
            ToolCallProgress(
                session_update="tool_call_update",
                tool_call_id=call_id,
                **given,  # type: ignore[arg-type]  # each caller gives fields of this model
            )
        )

    # --- child agents --------------------------------------------------------------------

    def add_child_call(self, call_id: str) -> None:
        """A call of a child agent is shown by itself: it needs an approval."""
        self._child_calls.add(call_id)

    def _on_child_event(self, call_id: str, event: Event) -> None:
        event = unwrap(event)
        if isinstance(event, ToolFinished):
            own_id = make_child_call_id(event.session_id, event.call_id)
            if own_id in self._child_calls:
                self._child_calls.discard(own_id)
                status: ToolCallStatus = "failed" if event.is_error else "completed"
                content = tool_calls.make_output(event.display or event.result)
                self._update_call(own_id, status=status, content=content)
        elif isinstance(event, ToolStarted):
            lines = self._child_lines.setdefault(call_id, [])
            lines.append(event.summary.removeprefix("[").removesuffix("]"))
            del lines[:-MAX_CHILD_LINES]
            self._update_call(call_id, content=tool_calls.make_output("\n".join(lines)))
        elif isinstance(event, WarningRaised):
            self.show_note(event.text)

    # --- the rest ------------------------------------------------------------------------

    def show_note(self, text: str) -> None:
        """A line of the program, apart from the text of the model."""
        quoted = "\n".join(f"> {line}" for line in text.splitlines())
        self._outbox.put(_make_message(f"\n\n{quoted}\n\n"))

    def show_text(self, text: str) -> None:
        self._outbox.put(_make_message(text))

    def _show_usage(self, last: Usage) -> None:
        cost = self._get_usage().cost
        self._outbox.put(
            UsageUpdate(
                session_update="usage_update",
                used=last.total_input + last.output,
                size=self._get_window(),
                cost=Cost(amount=round(cost, 6), currency="USD") if cost is not None else None,
            )
        )

    def replay(self, items: Iterable[Item]) -> None:
        """Show the history of a loaded session."""
        plan: ToolCall | None = None
        for item in items:
            match item:
                case UserItem():
                    self._replay_message(item)
                case AssistantItem(content=parts):
                    for part in parts:
                        match part:
                            case Text(text=text):
                                self._outbox.put(_make_message(text))
                            case Thinking(text=text) if text:
                                self._outbox.put(_make_thought(text))
                            case ToolCall(name=name) if tool_calls.is_plan(name):
                                self._calls[part.id] = part
                            case ToolCall():
                                self._request_call(part)
                            case _:
                                pass
                case ToolResultItem(name=name) if tool_calls.is_plan(name):
                    call = self._calls.pop(item.call_id, None)
                    plan = plan if item.is_error else call
                case ToolResultItem():
                    self._finish_call(item)
                case _:
                    pass
        entries = tool_calls.parse_plan(plan.arguments) if plan is not None else None
        if entries:
            self._outbox.put(AgentPlanUpdate(session_update="plan", entries=entries))

    def _replay_message(self, item: UserItem) -> None:
        for part in item.content:
            block: TextContentBlock | ImageContentBlock | None = None
            if isinstance(part, Text):
                block = TextContentBlock(type="text", text=part.text)
            elif isinstance(part, Image) and part.data:
                data = base64.b64encode(part.data).decode()
                block = ImageContentBlock(type="image", data=data, mime_type=part.media_type)
            if block is not None:
                chunk = UserMessageChunk(session_update="user_message_chunk", content=block)
                self._outbox.put(chunk)


def make_result_fields(item: ToolResultItem, cwd: str) -> dict[str, object]:
    """The fields of a finished call."""
    content = tool_calls.make_result_content(item, cwd)
    fields: dict[str, object] = {
        "status": "failed" if item.is_error else "completed",
        "content": content,
    }
    changed = (item.data or {}).get("changed_files")
    if isinstance(changed, list):
        fields["locations"] = [ToolCallLocation(path=str(path)) for path in changed]
    return fields


def make_child_call_id(session_id: str, call_id: str) -> str:
    """The id of a child's call: those of the parent and of other children may be the same."""
    return f"{session_id}/{call_id}"


def _make_message(text: str) -> AgentMessageChunk:
    block = TextContentBlock(type="text", text=text)
    return AgentMessageChunk(session_update="agent_message_chunk", content=block)


def _make_thought(text: str) -> AgentThoughtChunk:
    block = TextContentBlock(type="text", text=text)
    return AgentThoughtChunk(session_update="agent_thought_chunk", content=block)
