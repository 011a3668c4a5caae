"""What a user changes from inside: `/config NAME VALUE`, `/permissions add|remove`.

A host opens its session again in its own way (`reopen`), so that a change is in force at once. Used
by the terminal and the page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from treadle.apps.conversation.host import Host
from treadle.apps.settings.rule_changes import parse_rule_change
from treadle.core.loop.driver import Driver

# Opens the session again with the driver of the function.
Reopen = Callable[[Callable[[], Awaitable[Driver]]], Awaitable[object]]


async def change_setting(host: Host, arguments: str, reopen: Reopen) -> str:
    """Change `NAME VALUE`; a message about it, "" if the session could not be opened with it."""
    change, message = host.plan_setting(arguments), ""

    async def open_driver() -> Driver:
        nonlocal message
        driver, message = await host.change_setting(change)
        return driver

    await reopen(open_driver)
    return message


async def change_rules(host: Host, arguments: str, reopen: Reopen) -> str:
    """Add or remove a rule; a message about it."""
    message = host.change_rules(parse_rule_change(arguments))
    await reopen(host.reopen)
    return message
