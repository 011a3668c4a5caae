"""Whether a folder's own files count: what the person is asked, and what the answers do.

The same words for the full screen and the plain mode, at the first start in a folder and for
`/trust`. A no can be for this time or for good. Programs that the folder brings are asked about on
their own, each time they are new or changed. What trust means is policy/trust.py's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from treadle.apps.tui.host import Host
from treadle.apps.tui.state.choice_option import ChoiceOption
from treadle.core.sanitize import escape_invisible

DECLINED_NOTE = "this folder's own files do not count, as you said: /trust changes that"
_YES = ChoiceOption("yes", "Trust it", key="y")
_NO = ChoiceOption("no", "Work here without its own files counting", key="n")
_NEVER = ChoiceOption("never", "The same, and do not ask again", key="d")
_QUIT = ChoiceOption("quit", "Leave", key="q")


class Chooser(Protocol):
    """How the person is asked: a title, some words under it, and what to choose from."""

    def __call__(
        self, title: str, options: Sequence[ChoiceOption], *, message: str = ""
    ) -> Awaitable[str | None]: ...


async def ask_at_start(host: Host, choose: Chooser) -> bool:
    """Ask if it has not been said yet; whether to go on at all."""
    if host.is_trusted or host.is_trust_declined:
        return True
    answer = await _ask_trust(host, choose, [_YES, _NO, _NEVER, _QUIT])
    return answer in ("yes", "no", "never")


async def ask_again(host: Host, choose: Chooser) -> bool:
    """Ask about what is still open; whether anything is different now."""
    if host.is_trusted:
        return await _ask_programs(host, choose)
    never = ChoiceOption("never", "No, and do not ask at the start", key="n")
    return await _ask_trust(host, choose, [_YES, never]) == "yes"


async def _ask_trust(host: Host, choose: Chooser, options: Sequence[ChoiceOption]) -> str | None:
    brings = host.list_extension_files()
    there = f"\nhas {escape_invisible(', '.join(brings))}" if brings else ""
    words = (
        f"{escape_invisible(str(host.folder))}{there}\n\n"
        "A trusted folder's own files count: its AGENTS.md and CLAUDE.md, its settings, "
        "commands, agents, skills and allow rules. Trust it if you know who wrote them. "
        "Either way, you are asked before anything is changed."
    )
    answer = await choose("Do you trust the files in this folder?", options, message=words)
    if answer == "yes":
        host.trust()
        await _ask_programs(host, choose)
    elif answer == "never":
        host.decline_trust()
    return answer


async def _ask_programs(host: Host, choose: Chooser) -> bool:
    waiting = host.list_unapproved_programs()
    if not waiting:
        return False
    answer = await choose(
        "May these programs of the folder run, as they are now?",
        [ChoiceOption("yes", "Let them run", key="y"), ChoiceOption("no", "Not now", key="n")],
        message="\n".join(map(escape_invisible, waiting)),
    )
    if answer == "yes":
        host.approve_programs()
    return answer == "yes"
