"""Texts and answers of an approval that all hosts show, and the argument that the user may edit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from treadle.apps.conversation.block_text import format_call_title
from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.answers import Question
from treadle.apps.conversation.open_questions import OpenQuestions, PendingQuestion
from treadle.apps.conversation.state.blocks import ToolCallBlock, strip_brackets
from treadle.core.contracts.policy import RiskKind
from treadle.core.errors import TreadleError
from treadle.core.steps import PendingApproval
from treadle.core.transcript.content import Arguments
from treadle.lib.text.sanitize import escape_invisible

# For this session: until it is closed; for an edit in the folder it is the mode accept-edits.
# Always: the rules are saved.
# Reason: a no that the user explains.
ApprovalAnswer = Literal[
    "once", "network", "session", "always", "edit", "whole", "deny", "reason", "stop"
]
SAVED = "Saved for you, in .treadle/settings.local.json of this folder."
_EDITABLE_ARGUMENTS = ("command", "content", "new_string", "url")


def format_approval_title(approval: PendingApproval) -> str:
    """The question of an approval: `Run this command?`, `Allow edit src/a.py?`."""
    if approval.call.name == "bash":
        return "Run this command?"
    return f"Allow {_format_call(approval)}?"


def _format_call(approval: PendingApproval) -> str:
    name, summary = approval.call.name, strip_brackets(approval.summary)
    title = format_call_title(ToolCallBlock(approval.call.id, name, summary=summary))
    return escape_invisible(title.replace(": ", " ", 1))


class RiskLine(msgspec.Struct, frozen=True):
    """A risk of a call in words. `is_marked`: the user should not miss it."""

    text: str
    is_marked: bool = False


# The line of each kind, and the mark of those that must not be missed, the gravest first.
_RISK_TEXTS: Mapping[RiskKind, tuple[str, str]] = {
    "force_push": ("force push, can overwrite or delete on the remote", "force push"),
    "recursive_delete": ("deletes with all that is in it", "recursive delete"),
    "discard": ("git may lose changes or commits", "loses changes"),
    "remote_code": ("runs what it downloads", "runs downloaded code"),
    "other_user": ("runs as root or another user", "another user"),
    "no_sandbox": ("runs outside of the sandbox", "no sandbox"),
    "not_kept": (
        "not kept by the sandbox (start treadle with --add-dir FOLDER, or run it yourself with !)",
        "not kept by the sandbox",
    ),
    "no_network": (
        "fails, since the sandbox has no network (for all commands: start treadle with --network)",
        "no network in the sandbox",
    ),
    "send": ("sends data", "sends data"),
    "network": ("uses the network", "network"),
    "outside": ("outside of the folder", "outside of the folder"),
    "delete": ("deletes", ""),
    "write": ("writes", ""),
}


def list_risk_lines(approval: PendingApproval) -> list[RiskLine]:
    """What the call would write, delete and send, a line for each kind; [] if it is harmless."""
    lines: list[RiskLine] = []
    for kind in _list_kinds(approval):
        targets = _list_targets(approval, kind)
        text, mark = _RISK_TEXTS[kind]
        named = f": {escape_invisible(', '.join(targets))}" if targets else ""
        lines.append(RiskLine(f"{text}{named}", bool(mark)))
    return lines


def _list_targets(approval: PendingApproval, kind: RiskKind) -> list[str]:
    """Each once; `origin` is said by `origin main`."""
    found = dict.fromkeys(risk.target for risk in approval.risks if risk.kind == kind)
    return [one for one in found if one and not any(o.startswith(f"{one} ") for o in found)]


def format_risk_marks(approval: PendingApproval) -> str:
    """`! force push, recursive delete`, of more than two the gravest and how many others; "" if
    there is nothing that must not be missed. The lines of the list have them all."""
    marks = [mark for kind in _list_kinds(approval) if (mark := _RISK_TEXTS[kind][1])]
    if len(marks) > 2:
        return f"! {marks[0]} and {len(marks) - 1} more"
    return f"! {', '.join(marks)}" if marks else ""


def _list_kinds(approval: PendingApproval) -> list[RiskKind]:
    """The kinds of its risks; who sends, or has no network, also uses the network, and without a
    network nothing is sent."""
    found = {risk.kind for risk in approval.risks}
    hidden = {"network"} if found & {"send", "no_network"} else set()
    hidden |= {"send"} if "no_network" in found else set()
    return [kind for kind in _RISK_TEXTS if kind in found - hidden]


# Of these kinds the first answer, which is marked, is no.
_DANGEROUS: frozenset[RiskKind] = frozenset(_RISK_TEXTS) - {"write", "not_kept"}
COVERAGE_SECONDS = 5.0  # then the question is asked without it
_DENY = ChoiceOption("deny", "No, and go on without it", key="n")


def is_dangerous(approval: PendingApproval) -> bool:
    """Whether the call deletes, sends, uses the network or leaves the folder, or does worse."""
    return any(risk.kind in _DANGEROUS for risk in approval.risks)


def list_approval_options(approval: PendingApproval, *, is_child: bool) -> list[ChoiceOption]:
    """The answers to an approval, each with its label and key; the first one is marked. One of a
    child agent can be allowed only once, as it is."""
    rules = escape_invisible(", ".join(approval.rules))
    options = [ChoiceOption("once", "Yes, this once", key="y")]
    if open_network(approval) is not None and not is_child:
        options.append(ChoiceOption("network", "Yes, with the network for this command", key="o"))
    if (rules or approval.wider_mode) and not is_child:
        scope = describe_session_scope(approval)
        options.append(ChoiceOption("session", f"Yes, and {scope}", key="t"))
    if rules and not is_child:
        options.append(ChoiceOption("always", f"Yes, and always allow: {rules}", key="a"))
    if find_editable_argument(approval)[0] and not is_child:
        options.append(ChoiceOption("edit", "Edit first", key="e"))
    if has_whole_file(approval):
        options.append(ChoiceOption("whole", "Show the whole file", key="w"))
    options.insert(0 if is_dangerous(approval) else len(options), _DENY)
    options.append(ChoiceOption("reason", "No, with a reason that the model reads", key="r"))
    options.append(ChoiceOption("stop", "Stop the turn", key="s"))
    return options


async def find_coverage(rules: Sequence[str], folder: Path) -> str:
    """Which past calls of the folder the rules would have covered; "" if that takes too long."""
    from treadle.apps.console.permission_history import describe_coverage

    try:
        async with asyncio.timeout(COVERAGE_SECONDS):
            return await asyncio.to_thread(describe_coverage, rules, folder)
    except (TimeoutError, TreadleError, OSError, ValueError):
        return ""


def make_confirmation(
    approval: PendingApproval, answer: str | None, coverage: str = ""
) -> Question | None:
    """The second question of an answer that allows more than the call as it is; else None.
    `coverage` says which past calls the rules would have covered."""
    rules = escape_invisible("\n".join(approval.rules))
    if answer == "always":
        covered = f"would have covered {coverage}\n" if coverage else ""
        title, message = "Allow this always?", f"{rules}\n{covered}{SAVED}"
        label = "Yes, save it"
    elif answer == "network":
        title, label = "Run it with the network?", "Yes, with the network"
        message = "This command can send what it reads to any host. Nothing is saved."
    else:
        return None
    options = [ChoiceOption("yes", label, key="y"), ChoiceOption("no", "No, go back", key="n")]
    return Question(title, options[:: -1 if is_dangerous(approval) else 1], message=message)


def open_network(approval: PendingApproval) -> Arguments | None:
    """The arguments of a command that would fail, since the sandbox has no network, with which it
    has the network; None for other calls."""
    if all(risk.kind != "no_network" for risk in approval.risks):
        return None
    return {**approval.arguments, "sandbox": "network"}


def answer_approval(
    questions: OpenQuestions,
    question: PendingQuestion,
    answer: str | None,
    text: str = "",
    arguments: Arguments | None = None,
) -> bool:
    """Pass an answer on: `text` is the reason of a no, `arguments` are edited
    ones. False if it is none of ApprovalAnswer that decides, or an edit without a text."""
    approval = question.approval
    given = approval.arguments if approval is not None else {}
    match answer:
        case "once":
            questions.approve(question)
        case "network" if approval is not None:
            questions.approve(question, arguments=open_network(approval))
        case "session":
            questions.approve_for_session(question)
        case "always":
            questions.approve(question, always=True)
        case "edit" if approval is not None and _has_edit(approval, arguments):
            questions.approve(question, arguments={**given, **(arguments or {})})
        case "deny" | "reason":
            questions.deny(question, text.strip())
        case _:
            return False
    return True


def _has_edit(approval: PendingApproval, arguments: Arguments | None) -> bool:
    """Whether the edited arguments have a text for the one that may be edited, and no other."""
    name, _ = find_editable_argument(approval)
    text = (arguments or {}).get(name)
    return isinstance(text, str) and bool(text.strip()) and len(arguments or {}) == 1


def has_whole_file(approval: PendingApproval) -> bool:
    """Whether the diff can be shown with all lines of the file, and does not show them already."""
    preview = approval.preview
    return preview is not None and bool(preview.whole) and preview.whole != preview.text


def format_waiting_calls(approvals: Sequence[PendingApproval]) -> list[ChoiceOption]:
    """The calls that wait, a line each: what is called, and what must not be missed."""
    return [
        ChoiceOption(str(place), _format_call(approval), format_risk_marks(approval))
        for place, approval in enumerate(approvals)
    ]


def describe_session_scope(approval: PendingApproval) -> str:
    """What the answer "this session" allows, without its rules."""
    if approval.wider_mode:
        return "allow edits in this session"
    return "allow it in this session"


def find_editable_argument(approval: PendingApproval) -> tuple[str, str]:
    """Name and text of the argument that a user may want to edit; empty if there is none."""
    arguments = approval.arguments
    for name in _EDITABLE_ARGUMENTS:
        if isinstance(arguments.get(name), str):
            return name, arguments[name]
    return "", ""
