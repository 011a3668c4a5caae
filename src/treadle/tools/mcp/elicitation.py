"""A server's question to the user: the fields of a form one by one, or a link to open.

The user first sees who asks and for what, and may refuse. Answers are checked against the form; a
wrong one is asked again. The questions go through the same service as those of the tool `ask`.
Secrets do not belong into a form; a server asks for them with a link. No SDK here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from treadle.lib.text.sanitize import escape_invisible
from treadle.tools.builtin.conversation.ask import AskUser, QuestionChoice, UserQuestion

ANSWER, REFUSE, OPEN = "Answer", "Refuse", "Open the page"
MAX_ATTEMPTS = 3
MAX_TEXT_CHARS = 2_000

FormValue = str | int | float | bool | list[str]


class Elicited(msgspec.Struct, frozen=True):
    """How the user reacted, in the words of the protocol."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, FormValue] | None = None


async def ask_form(ask: AskUser, server: str, message: str, schema: Mapping[str, Any]) -> Elicited:
    """Ask for the fields of a form."""
    fields = schema.get("properties")
    fields = fields if isinstance(fields, Mapping) else {}
    listed = ", ".join(_get_title(name, field) for name, field in fields.items())
    intro = f"The MCP server {server} asks: {_clean(message)}"
    if listed:
        intro += f"\nIt wants to know: {_clean(listed)}"
    first = await ask(UserQuestion(intro, (QuestionChoice(ANSWER), QuestionChoice(REFUSE))))
    if first != ANSWER:
        return Elicited("decline" if first == REFUSE else "cancel")
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    content: dict[str, FormValue] = {}
    for name, field in fields.items():
        field = field if isinstance(field, Mapping) else {}
        outcome = await _ask_field(ask, name, field, is_required=name in required)
        if outcome is None:
            return Elicited("cancel")
        content.update(outcome)
    return Elicited("accept", content)


async def ask_link(
    ask: AskUser, server: str, message: str, url: str, open_url: Callable[[str], object] | None
) -> Elicited:
    """Ask whether to open a page. The whole address is shown: it decides who gets the answer."""
    text = f"The MCP server {server} asks you to open a page: {_clean(message)}\n{_clean(url)}"
    if not url.startswith(("https://", "http://")) or len(url) > MAX_TEXT_CHARS:
        return Elicited("decline")
    label = OPEN if open_url is not None else "I have opened it"
    answer = await ask(UserQuestion(text, (QuestionChoice(label), QuestionChoice(REFUSE))))
    if answer != label:
        return Elicited("decline" if answer == REFUSE else "cancel")
    if open_url is not None:
        open_url(url)
    return Elicited("accept")


async def _ask_field(
    ask: AskUser, name: str, field: Mapping[str, Any], *, is_required: bool
) -> dict[str, FormValue] | None:
    """The value of one field by its name; empty if it is left out, None if the user stopped."""
    options = _find_options(field)
    default = field.get("default")
    title = _get_title(name, field)
    about = f" - {_clean(str(field['description']))}" if field.get("description") else ""
    text = f"{title}{about}"
    if default is not None:
        text += f" (empty: {default})"
    elif not is_required:
        text += " (may be empty)"
    problem = ""
    for _ in range(MAX_ATTEMPTS):
        choices = tuple(QuestionChoice(_clean(label)) for label in options.values())
        is_multiple = field.get("type") == "array"
        question = UserQuestion(f"{problem}{text}", choices, is_multiple)
        answer = await ask(question)
        if answer is None:
            return None
        if not answer.strip():
            if default is not None:
                return {name: default}
            if not is_required:
                return {}
            problem = "An answer is needed. "
            continue
        value = _parse_value(answer.strip(), field, options)
        if not isinstance(value, _Wrong):
            return {name: value}
        problem = f"{value.problem} "
    return None


class _Wrong(msgspec.Struct, frozen=True):
    problem: str


def _parse_value(
    answer: str, field: Mapping[str, Any], options: Mapping[str, str]
) -> FormValue | _Wrong:
    kind = field.get("type")
    if kind == "array":
        values = [_find_value(part.strip(), options) for part in answer.split(",")]
        return values if all(value in options for value in values) else _Wrong("Choose from these.")
    if kind == "boolean":
        yes_or_no = {"yes": True, "true": True, "no": False, "false": False}.get(answer.lower())
        return _Wrong("Answer yes or no.") if yes_or_no is None else yes_or_no
    if kind in ("integer", "number"):
        return _parse_number(answer, field)
    if options:
        value = _find_value(answer, options)
        return value if value in options else _Wrong("Choose one of these.")
    shortest, longest = field.get("minLength", 0), field.get("maxLength", MAX_TEXT_CHARS)
    if not shortest <= len(answer) <= longest:
        return _Wrong(f"It has to have {shortest} to {longest} characters.")
    if field.get("format") == "email" and "@" not in answer[1:-1]:
        return _Wrong("This is no e-mail address.")
    return answer


def _parse_number(answer: str, field: Mapping[str, Any]) -> int | float | _Wrong:
    try:
        number = int(answer) if field["type"] == "integer" else float(answer)
    except ValueError:
        return _Wrong("A whole number is needed." if field["type"] == "integer" else "A number.")
    low, high = field.get("minimum", number), field.get("maximum", number)
    if not low <= number <= high:
        return _Wrong(f"It has to be from {low} to {high}.")
    return number


def _find_options(field: Mapping[str, Any]) -> dict[str, str]:
    """The values that a field may have, with the text of each."""
    if field.get("type") == "boolean":
        return {"yes": "yes", "no": "no"}
    inner = field.get("items")
    source = inner if field.get("type") == "array" and isinstance(inner, Mapping) else field
    titled = source.get("oneOf") or source.get("anyOf")
    if isinstance(titled, list):
        return {str(one["const"]): str(one.get("title", one["const"])) for one in titled}
    values = source.get("enum")
    if not isinstance(values, list):
        return {}
    names = field.get("enumNames")
    labels = names if isinstance(names, list) and len(names) == len(values) else values
    return {str(value): str(label) for value, label in zip(values, labels, strict=True)}


def _find_value(answer: str, options: Mapping[str, str]) -> str:
    return next((value for value, label in options.items() if label == answer), answer)


def _get_title(name: str, field: object) -> str:
    title = field.get("title") if isinstance(field, Mapping) else None
    return _clean(str(title or name))


def _clean(text: str) -> str:
    """Text of a server, safe to show."""
    return escape_invisible(text[:MAX_TEXT_CHARS], keep="\n")
