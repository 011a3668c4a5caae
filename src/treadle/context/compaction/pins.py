"""What survives every compaction, word for word.

    the user's own words      gathered in one notice of kind "said"
    open todos                the newest list, as a notice of kind "todos"
    rulings                   each call that was denied, as a notice of kind "ruling"
    files being edited        their paths, as a notice of kind "files"
    tools that came late      as they were announced, in notices of kind "tools"

Pins are ordinary items of the view, so the next compaction finds them again; the agent's own
definition is in the system prompt, which compaction never touches.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.core.transcript.content import Text, UserContent
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    ToolResultItem,
    UserItem,
)

TODO_TOOLS = frozenset({"todo", "todowrite", "todo_write"})
EDITING_TOOLS = frozenset({"write", "edit", "multiedit", "apply_patch"})
PATH_KEYS = ("file_path", "path")
USER_MESSAGES_HEADING = "What the user said so far, word for word:"
MESSAGE_SEPARATOR = (
    "\n---\n"  # a message that holds this line itself is cut and joined again the same
)
MAX_DENIALS = 40
MAX_FILES = 60


def collect_pins(items: Sequence[Item]) -> list[Item]:
    """What of these items stays in view: the user's words first, then the rest."""
    others = [
        notice for notice in (_find_todos(items), _find_edited_files(items)) if notice is not None
    ]
    late = [item for item in items if isinstance(item, NoticeItem) and item.kind == "tools"]
    said = collect_user_messages(items)
    first = [make_user_messages_notice(said)] if said else []
    return [*first, *_find_denials(items)[-MAX_DENIALS:], *others, *late]


def is_pin(item: Item) -> bool:
    if isinstance(item, NoticeItem):
        return item.kind in ("said", "todos", "ruling", "files", "tools")
    return isinstance(item, UserItem)


def collect_user_messages(items: Sequence[Item]) -> list[str]:
    """What the user said, message by message, gathered before or not."""
    words: list[str] = []
    for item in items:
        if isinstance(item, UserItem):
            words.append("\n".join(_content_text(part) for part in item.content))
        elif isinstance(item, NoticeItem) and item.kind == "said":
            words += item.text.removeprefix(USER_MESSAGES_HEADING + "\n").split(MESSAGE_SEPARATOR)
    return words


def make_user_messages_notice(messages: Sequence[str]) -> NoticeItem:
    return NoticeItem(
        f"{USER_MESSAGES_HEADING}\n{MESSAGE_SEPARATOR.join(messages)}", kind="said", next_move="ask"
    )


def _content_text(part: UserContent) -> str:
    return part.text if isinstance(part, Text) else f"[a {part.media_type} that was shown]"


def _find_todos(items: Sequence[Item]) -> NoticeItem | None:
    for item in reversed(items):
        if isinstance(item, NoticeItem) and item.kind == "todos":
            return item
        if (
            isinstance(item, ToolResultItem)
            and item.name.lower() in TODO_TOOLS
            and not item.is_error
        ):
            # The person's side of the answer holds the list itself.
            return NoticeItem(f"The todo list:\n{item.display or item.text}", kind="todos")
    return None


def _find_denials(items: Sequence[Item]) -> list[NoticeItem]:
    calls = {
        call.id: call for item in items if isinstance(item, AssistantItem) for call in item.calls
    }
    found: list[NoticeItem] = []
    for item in items:
        if isinstance(item, NoticeItem) and item.kind == "ruling":
            found.append(item)
        elif isinstance(item, ToolResultItem) and item.is_error and item.text.startswith("denied:"):
            call = calls.get(item.call_id)
            what = f"{item.name} {call.raw if call else ''}".strip()
            found.append(NoticeItem(f"This call was not allowed: {what}\n{item.text}", "ruling"))
    unique: dict[str, NoticeItem] = {notice.text: notice for notice in found}
    return list(unique.values())


def _find_edited_files(items: Sequence[Item]) -> NoticeItem | None:
    paths: dict[str, None] = {}
    for item in items:
        if isinstance(item, NoticeItem) and item.kind == "files":
            paths.update(dict.fromkeys(item.text.splitlines()[1:]))
        elif isinstance(item, AssistantItem):
            for call in item.calls:
                if call.name.lower() not in EDITING_TOOLS:
                    continue
                for key in PATH_KEYS:
                    path = (call.arguments or {}).get(key)
                    if isinstance(path, str):
                        paths.pop(path, None)
                        paths[path] = None
    if not paths:
        return None
    newest = list(paths)[-MAX_FILES:]
    return NoticeItem("Files that were changed in this session:\n" + "\n".join(newest), "files")
