"""The page of the hook events: the points of a hook, their names in settings, answers and data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from scripts.reference_pages.markdown import list_codes, make_entry, make_page
from treadle.core.contracts.hook import ALLOWED_ANSWERS, HookPoint
from treadle.core.contracts.hook_data import HOOK_DATA
from treadle.hooks.hook_config import HOOK_EVENTS, MATCHER_FIELDS, UNSUPPORTED_EVENTS

INTRODUCTION = """\
A hook of the settings names an event such as `PreToolUse`; a hook that is a Python function names
the point, such as `pre_tool_use`. [hooks.md](../hooks.md) says how both are written, and what a
command reads and prints.

A function gets a `HookInput`: `point`, `session_id`, `turn_id`, `caller`, `deps` of the run and
`data`. The type of `data` and the answers are in [`treadle.contracts`](api/treadle.contracts.md).
A returned string is an `AddContext`. What the point does not allow is ignored with a warning."""
# When the point comes, and what a hook can do there.
TEXTS: dict[HookPoint, str] = {
    "session_start": "The session begins. A hook can add context.",
    "subagent_start": "A child agent begins. A hook can add context for it.",
    "user_prompt_submit": "The user sent a message. A hook can deny it or add context.",
    "pre_tool_use": (
        "An allowed call is about to run. A hook can deny it, change its arguments or add context."
    ),
    "before_effect": (
        "A call that is not pure runs next, with its final arguments. Only for functions; it can "
        "do nothing."
    ),
    "permission_request": (
        "The user would be asked. A hook can answer for the user: yes (only your own hooks) or no."
    ),
    "permission_denied": "The user, a rule or a hook denied a call. A hook can do nothing.",
    "post_tool_use": (
        "A call has ended (`PostToolUse`) or failed (`PostToolUseFailure`). A hook can change the "
        "text of the result "
        "or add context."
    ),
    "pre_compact": "The history is about to be compacted. A hook can deny it or add what to keep.",
    "post_compact": "The history was compacted. A hook can do nothing.",
    "instructions_loaded": (
        "A memory file is new for the model: in the prompt, by a folder or a file of the work, by "
        "an import, or changed. A hook can do nothing."
    ),
    "file_changed": (
        "A file that the session read or wrote was changed or deleted by something else; found "
        "before the next model call. A hook can do nothing."
    ),
    "config_change": (
        "The user changes a setting of the running session (`/config NAME VALUE`). A hook can "
        "deny it."
    ),
    "subagent_stop": (
        "A child agent is about to end its turn. A hook can make it continue, with a reason."
    ),
    "stop": "The agent is about to end its turn. A hook can make it continue, with a reason.",
    "stop_failure": "The turn ends with an error. A hook can do nothing.",
    "notification": "The user's attention is needed. A hook can do nothing else.",
    "session_end": "The session is closed. A hook can do nothing else.",
}


def write_page() -> str:
    foreign = (
        "## Events of Claude Code that do nothing here\n\n"
        "In a settings file that was written for Claude Code they are named in a note; in ours "
        "they are an error.\n\n" + list_codes(sorted(UNSUPPORTED_EVENTS), " · ")
    )
    return make_page("Hook events", INTRODUCTION, *map(describe, get_args(HookPoint)), foreign)


def describe(point: HookPoint) -> str:
    events = [event for event, its_point in HOOK_EVENTS.items() if its_point == point]
    title = ", ".join(reversed(events)) or point
    return make_entry(title, TEXTS[point], list(list_facts(point)))


def list_facts(point: HookPoint) -> Iterator[str]:
    answers = [kind.__name__ for kind in ALLOWED_ANSWERS[point]]
    data: Any = HOOK_DATA[point]
    yield f"point: `{point}`"
    yield f"answers: {list_codes(answers) or 'none'}"
    yield f"`data` is a `{data.__name__}`: {list_codes(data.__annotations__) or 'no keys'}"
    if point in MATCHER_FIELDS:
        field = MATCHER_FIELDS[point][0]
        part = " or its last part" if field == "file_path" else ""
        yield f"a matcher is compared with `{field}`{part}"
    elif "tool_name" in data.__annotations__:
        yield "a matcher is compared with the name of the tool"
