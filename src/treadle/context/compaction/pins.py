"""What survives every compaction verbatim.

    user messages, answers    gathered in one notice of kind "said", data: messages
    accepted plan             the newest, as a notice of kind "plan"
    open todos                the newest list, as a notice of kind "todos", data: open
    denied calls              each as a notice of kind "ruling"
    approved and edited calls each as a notice of kind "approval"
    edited files              their paths, as a notice of kind "files", data: paths
    late tools                as announced, in notices of kind "tools"
    git at the beginning      with the user's changes, as a notice of kind "environment"

Pins are ordinary items of the view, so the next compaction finds them again. The agent's own
definition is in the system prompt, which compaction never touches.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.core.events import PREVIEW_CHARS
from treadle.core.transcript.content import Image, Text, ToolCall, UserContent
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, ToolResultItem, UserItem

TODO_TOOLS = frozenset({"todo", "todowrite", "todo_write"})
PIN_KINDS = frozenset(
    {"said", "todos", "ruling", "approval", "files", "tools", "plan", "environment"}
)
KEPT_KINDS = frozenset({"tools", "environment"})  # as they are
MESSAGE_SEPARATOR = "\n---\n"
MAX_DENIALS = 40
MAX_APPROVALS = 40
MAX_ARGUMENT_CHARS = 2_000  # of an approved call; shorter if it was not edited
MAX_FILES = 60


def collect_pins(items: Sequence[Item]) -> list[Item]:
    """The pins of these items: the user messages first, then the rest."""
    messages = collect_user_messages(items)
    pins = [
        make_user_messages_notice(messages) if messages else None,
        *_find_denials(items)[-MAX_DENIALS:],
        *_find_approvals(items)[-MAX_APPROVALS:],
        _find_plan(items),
        _find_todos(items),
        _find_edited_files(items),
        *(item for item in items if isinstance(item, NoticeItem) and item.kind in KEPT_KINDS),
    ]
    return [pin for pin in pins if pin is not None]


def is_pin(item: Item) -> bool:
    if isinstance(item, NoticeItem):
        return item.kind in PIN_KINDS
    return isinstance(item, UserItem)


def collect_user_messages(items: Sequence[Item]) -> list[str]:
    """The text of every user message and answer, whether or not an earlier compaction gathered
    it."""
    messages: list[str] = []
    questions: dict[str, str] = {}
    for item in items:
        if isinstance(item, AssistantItem):
            for call in item.calls:
                questions[call.id] = str((call.arguments or {}).get("question", ""))
        elif isinstance(item, ToolResultItem) and (answer := _find_answer(item)):
            question = questions.get(item.call_id, "")
            messages.append(f"(answer to: {question}) {answer}" if question else answer)
        if isinstance(item, UserItem):
            messages.append("\n".join(replace_media(part).text for part in item.content))
        elif isinstance(item, NoticeItem) and item.kind == "said":
            pinned = _pinned_list(item, "messages")
            messages += _messages_of_old_notice(item.text) if pinned is None else pinned
    return messages


def make_user_messages_notice(messages: Sequence[str]) -> NoticeItem:
    text = f"All messages of the user so far, verbatim:\n{MESSAGE_SEPARATOR.join(messages)}"
    return NoticeItem(text, "said", next_move="ask", data={"messages": list(messages)})


def list_open_todos(source: NoticeItem | ToolCall) -> list[str]:
    """The open todos of a pinned list, or of a todo call."""
    if isinstance(source, ToolCall):
        return _open_todos_of_call(source)
    pinned = _pinned_list(source, "open")
    return _todos_of_old_notice(source.text) if pinned is None else pinned


def _pinned_list(notice: NoticeItem, key: str) -> list[str] | None:
    return (notice.data or {}).get(key)


def _open_todos_of_call(call: ToolCall) -> list[str]:
    listed = (call.arguments or {}).get("todos")
    todos = [todo for todo in listed if isinstance(todo, dict)] if isinstance(listed, list) else []
    return [str(todo.get("content", "")) for todo in todos if todo.get("status") != "completed"]


def replace_media(part: UserContent) -> Text:
    """An image or document as a note about it."""
    if isinstance(part, Text):
        return part
    kind = "picture" if isinstance(part, Image) else "document"
    return Text(f"[a {kind} ({part.media_type}) that was shown before]")


def _calls_by_id(items: Sequence[Item]) -> dict[str, ToolCall]:
    replies = (item for item in items if isinstance(item, AssistantItem))
    return {call.id: call for reply in replies for call in reply.calls}


def _find_plan(items: Sequence[Item]) -> NoticeItem | None:
    """The plan that the user accepted last, as `present_plan` keeps it in its result."""
    for item in reversed(items):
        if isinstance(item, NoticeItem) and item.kind == "plan":
            return item
        if isinstance(item, ToolResultItem) and (plan := get_accepted_plan(item)):
            text = f"The plan that the user accepted:\n{plan}"
            return NoticeItem(text, "plan")
    return None


def get_accepted_plan(result: ToolResultItem) -> str:
    """The plan that the user accepted with this result of `present_plan`; "" if it has none."""
    plan = (result.data or {}).get("plan") if result.name == "present_plan" else None
    text = plan.get("text") if isinstance(plan, dict) else None
    return text if isinstance(text, str) else ""


def _find_todos(items: Sequence[Item]) -> NoticeItem | None:
    for item in reversed(items):
        if isinstance(item, NoticeItem) and item.kind == "todos":
            return item
        if not isinstance(item, ToolResultItem):
            continue
        if item.name.lower() in TODO_TOOLS and not item.is_error:
            # The result for the user holds the list itself.
            text = f"The todo list:\n{item.display or item.text}"
            call = _calls_by_id(items).get(item.call_id)
            data = {"open": _open_todos_of_call(call)} if call is not None else None
            return NoticeItem(text, "todos", data=data)
    return None


def _find_denials(items: Sequence[Item]) -> list[NoticeItem]:
    calls = _calls_by_id(items)
    denials: list[NoticeItem] = []
    for item in items:
        if isinstance(item, NoticeItem) and item.kind == "ruling":
            denials.append(item)
        elif isinstance(item, ToolResultItem) and _is_denied(item):
            call = calls.get(item.call_id)
            described = f"{item.name} {call.raw if call else ''}".strip()
            text = f"This call was not allowed: {described}\n{item.text}"
            denials.append(NoticeItem(text, "ruling"))
    return list({notice.text: notice for notice in denials}.values())


def _find_approvals(items: Sequence[Item]) -> list[NoticeItem]:
    calls = _calls_by_id(items)
    approvals: list[NoticeItem] = []
    for item in items:
        if isinstance(item, NoticeItem) and item.kind == "approval":
            approvals.append(item)
        elif isinstance(item, ToolResultItem) and item.data and "approval" in item.data:
            call, edited = calls.get(item.call_id), item.edited_arguments
            raw = _shorten(call.raw, PREVIEW_CHARS) if call else ""
            text = f"The user allowed this call: {item.name} {raw}".strip()
            if edited is not None:
                changed = _shorten(edited, MAX_ARGUMENT_CHARS)
                text = f"The user changed the call {item.name} {raw}\nIt ran with: {changed}"
            approvals.append(NoticeItem(text, "approval"))
    return list({notice.text: notice for notice in approvals}.values())


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "..."


def _find_answer(result: ToolResultItem) -> str:
    """What the user answered to a question of the model; "" for other results."""
    answer = (result.data or {}).get("user_answer")
    return answer if isinstance(answer, str) else _answer_of_old_result(result)


def list_changed_files(items: Sequence[Item]) -> list[str]:
    """The files that the tools changed in these items, the newest last."""
    paths: dict[str, None] = {}
    calls: dict[str, ToolCall] = {}
    for item in items:
        if isinstance(item, NoticeItem) and item.kind == "files":
            pinned = _pinned_list(item, "paths")
            known = item.text.splitlines()[1:] if pinned is None else pinned
            paths.update(dict.fromkeys(known))
        elif isinstance(item, AssistantItem):
            calls = {call.id: call for call in item.calls}
        elif isinstance(item, ToolResultItem):
            changed = (item.data or {}).get("changed_files")
            for path in _paths_of_old_result(item, calls) if changed is None else changed:
                paths.pop(path, None)
                paths[path] = None
    return list(paths)


def _find_edited_files(items: Sequence[Item]) -> NoticeItem | None:
    newest = list_changed_files(items)[-MAX_FILES:]
    if not newest:
        return None
    text = "Files that were changed in this session:\n" + "\n".join(newest)
    return NoticeItem(text, "files", data={"paths": newest})


# --- logs of 0.1: their items have neither data nor an outcome, only these texts --------------


def _answer_of_old_result(result: ToolResultItem) -> str:
    heading = "The user answered: "
    if result.name != "ask" or result.is_error or not result.text.startswith(heading):
        return ""
    return result.text.removeprefix(heading)


def _paths_of_old_result(result: ToolResultItem, calls: dict[str, ToolCall]) -> list[str]:
    """The file of a finished write or edit, which names it only in its arguments."""
    call = calls.get(result.call_id)
    if call is None or result.is_error or result.name not in ("write", "edit"):
        return []
    path = (call.arguments or {}).get("file_path")
    return [path] if isinstance(path, str) else []


def _messages_of_old_notice(text: str) -> list[str]:
    heading = "What the user said so far, word for word:\n"
    return text.removeprefix(heading).split(MESSAGE_SEPARATOR)


def _todos_of_old_notice(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines()]
    return [line[4:] for line in lines if line.startswith(("[ ] ", "[>] "))]


def _is_denied(item: ToolResultItem) -> bool:
    is_old = item.outcome == "finished" and item.is_error
    return item.outcome == "denied" or (is_old and item.text.startswith("denied:"))
