"""The trust dialog: asks whether the files of a folder take effect.

Used by the terminal at the first start in a folder, and by `/trust`. A no holds for this session
or for good. Hooks and servers of the folder need a separate approval whenever they are new or
changed. What trust allows is defined in permissions/trust.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from treadle.apps.conversation.choice_option import ChoiceOption
from treadle.apps.conversation.host import Host
from treadle.apps.conversation.modes import MODE_DESCRIPTIONS
from treadle.lib.text.sanitize import escape_invisible

DECLINED_NOTE = "this folder is not trusted: its own files are ignored; /trust changes that"
_NO_SANDBOX = (
    " Where there is no sandbox, it asks before commands that do more than read or edit files."
)
MAX_LISTED_RULES = 8
MAX_RULE_CHARS = 120
_YES = ChoiceOption("yes", "Trust this folder", key="y")
_NO = ChoiceOption("no", "Not now: work without its settings files", key="n")
_NEVER = ChoiceOption("never", "Do not trust it, and do not ask again", key="d")
_QUIT = ChoiceOption("quit", "Quit", key="q")


class Chooser(Protocol):
    """Asks the user to choose; `message` is shown below the title."""

    def __call__(
        self,
        title: str,
        options: Sequence[ChoiceOption],
        *,
        message: str = "",
        by_user: bool = True,
    ) -> Awaitable[str | None]: ...


async def ask_at_start(host: Host, choose: Chooser) -> bool:
    """Ask, unless the user has decided before; False if the user quits."""
    if host.is_trusted or host.is_trust_declined:
        return True
    answer = await _ask_trust(host, choose, [_YES, _NO, _NEVER, _QUIT])
    return answer in ("yes", "no", "never")


async def ask_again(host: Host, choose: Chooser) -> bool:
    """Ask for trust, or about unapproved programs; whether the answer changed anything."""
    if host.is_trusted:
        return await _ask_programs(host, choose)
    never = ChoiceOption("never", "No, and do not ask at the start", key="n")
    return await _ask_trust(host, choose, [_YES, never]) == "yes"


async def _ask_trust(host: Host, choose: Chooser, options: Sequence[ChoiceOption]) -> str | None:
    files = host.list_extension_files()
    files_line = f"\ncontains {escape_invisible(', '.join(files))}" if files else ""
    allow_rules = describe_allow_rules(host.list_project_rules())
    mode, description = host.mode, MODE_DESCRIPTIONS.get(host.mode, "")
    message = (
        f"{escape_invisible(str(host.folder))}{files_line}\n\n"
        "If you trust it, its own files take effect: AGENTS.md and CLAUDE.md, settings, commands, "
        "agents, skills and allow rules. Trust it only if you know who wrote them.\n\n"
        f"{allow_rules}"
        "In either case the permission mode decides what needs your approval. It is now "
        f"{mode}, which {description}.{_NO_SANDBOX if mode == 'auto' else ''}"
    )
    title = "Do you trust the files in this folder?"
    answer = await choose(title, options, message=message, by_user=False)
    if answer == "yes":
        host.trust()
        await _ask_programs(host, choose)
    elif answer == "never":
        host.decline_trust()
    return answer


def describe_allow_rules(rules: Sequence[str]) -> str:
    """A paragraph with the rules that are accepted with trust, the first of many; or ""."""
    if not rules:
        return ""
    lines = [f"  {escape_invisible(rule)[:MAX_RULE_CHARS]}" for rule in rules[:MAX_LISTED_RULES]]
    if (more := len(rules) - MAX_LISTED_RULES) > 0:
        lines.append(f"  and {more} more, which are in the settings files of the folder")
    return "\n".join(["These calls then need no approval of yours:", *lines]) + "\n\n"


async def _ask_programs(host: Host, choose: Chooser) -> bool:
    programs = host.list_unapproved_programs()
    if not programs:
        return False
    answer = await choose(
        "Allow these programs of the folder to run?",
        [ChoiceOption("yes", "Allow them", key="y"), ChoiceOption("no", "Not now", key="n")],
        message="\n".join(map(escape_invisible, programs)),
        by_user=False,
    )
    if answer == "yes":
        host.approve_programs()
    return answer == "yes"
