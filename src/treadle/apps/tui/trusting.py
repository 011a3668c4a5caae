"""Whether a folder's own files count: what the person is asked, and what the answers do.

The same words for the full screen and the plain mode, at the first start in a folder and for
`/trust`. A no can be for this time or for good. Programs that the folder brings are asked about on
their own, each time they are new or changed. What trust means is policy/trust.py's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from treadle.apps.tui.choice import Option
from treadle.apps.tui.host import Host
from treadle.core.terminal import visible

DECLINED = "this folder's own files do not count, as you said: /trust changes that"
_YES = Option("yes", "Trust it", key="y")
_NO = Option("no", "Work here without its own files counting", key="n")
_NEVER = Option("never", "The same, and do not ask again", key="d")
_LEAVE = Option("quit", "Leave", key="q")


class Choose(Protocol):
    """How the person is asked: a title, some words under it, and what to choose from."""

    def __call__(
        self, title: str, options: Sequence[Option], *, words: str = ""
    ) -> Awaitable[str | None]: ...


async def at_the_start(host: Host, choose: Choose) -> bool:
    """Ask if it has not been said yet; whether to go on at all."""
    if host.is_trusted or host.is_declined:
        return True
    answer = await _ask(host, choose, [_YES, _NO, _NEVER, _LEAVE])
    return answer in ("yes", "no", "never")


async def again(host: Host, choose: Choose) -> bool:
    """Ask about what is still open; whether anything is different now."""
    if host.is_trusted:
        return await _approve(host, choose)
    never = Option("never", "No, and do not ask at the start", key="n")
    return await _ask(host, choose, [_YES, never]) == "yes"


async def _ask(host: Host, choose: Choose, options: Sequence[Option]) -> str | None:
    brings = host.brings()
    there = f"\nhas {visible(', '.join(brings))}" if brings else ""
    words = (
        f"{visible(str(host.folder))}{there}\n\n"
        "A trusted folder's own files count: its AGENTS.md and CLAUDE.md, its settings, "
        "commands, agents, skills and allow rules. Trust it if you know who wrote them. "
        "Either way, you are asked before anything is changed."
    )
    answer = await choose("Do you trust the files in this folder?", options, words=words)
    if answer == "yes":
        host.trust()
        await _approve(host, choose)
    elif answer == "never":
        host.decline()
    return answer


async def _approve(host: Host, choose: Choose) -> bool:
    waiting = host.waiting()
    if not waiting:
        return False
    answer = await choose(
        "May these programs of the folder run, as they are now?",
        [Option("yes", "Let them run", key="y"), Option("no", "Not now", key="n")],
        words="\n".join(map(visible, waiting)),
    )
    if answer == "yes":
        host.approve()
    return answer == "yes"
