"""The goal and the limits of a session: which apply, where each was set, `/goal` and `/budget`.

The gates themselves are in budgets/gates.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import msgspec

from treadle.apps.conversation.session.lifecycle import SessionLifecycle
from treadle.apps.settings.managed_policy import read_policy
from treadle.apps.settings.settings import SETTINGS_BY_NAME, parse_setting
from treadle.core.contracts.observer import BaseObserver
from treadle.core.errors import ConfigError
from treadle.core.events import Event, TurnFinished
from treadle.core.transcript.entries import ItemAdded
from treadle.core.transcript.items import NoticeItem
from treadle.lib.text.text import format_dollars

LIMIT_OFF = "off"
USAGE = (
    "usage: /budget USD, /budget tokens N or /budget time 5m; /budget off, /budget tokens off and "
    "/budget time off remove a limit"
)
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+")
_SETTINGS = {"cost": "max_cost", "tokens": "max_tokens", "time": "max_time"}


class LimitLine(msgspec.Struct, frozen=True):
    """A limit that applies: the setting, its value and origin, and what is used of it."""

    setting: str
    value: float
    origin: str
    used: float | None = None


class SessionLimits:
    def __init__(self, session: SessionLifecycle) -> None:
        self._session = session

    @property
    def goal(self) -> str:
        """The command that must succeed before a turn ends; "" if there is none."""
        return self._session.choices.goal

    async def change_goal(self, command: str) -> None:
        """Every turn continues until this command succeeds; "" removes the goal."""
        last = [one for one in self._session.driver.transcript[-1:] if isinstance(one, NoticeItem)]
        is_over = not command and last and "goal_command" in (last[0].data or {})
        await self._session.reconfigure(self._end_goal if is_over else None, goal=command)

    async def _end_goal(self) -> None:
        """Without its goal, the last turn is finished: nothing is left to continue."""
        text = "The user removed the goal: its command is not run any more."
        ended = ItemAdded(NoticeItem(text, kind="goal", next_move="rest"))
        self._session.agent_session.store.append(ended)

    def list_limits(self) -> list[LimitLine]:
        """The limits of cost, tokens and time that apply to this session."""
        session = self._session
        settings, usage = session.load_settings(), session.driver.total_usage
        used = {"max_cost": usage.cost, "max_tokens": float(usage.total), "max_time": None}
        lines: list[LimitLine] = []
        for name, amount in used.items():
            value, origin = getattr(settings, name), settings.origin(name)
            if origin == "default":  # it is for scripts
                value, origin = read_policy().limits.get(name, (None, origin))
            if value is not None:
                is_changed = name in session.choices.changed_limits
                is_in_force = origin == SETTINGS_BY_NAME[name].option
                origin = "/budget" if is_changed and is_in_force else origin
                lines.append(LimitLine(name, value, origin, amount))
        return lines

    async def change(self, setting: str, value: float | None) -> None:
        """Change a limit of this session; None removes it."""
        choices = self._session.choices
        if value is None:
            await self._session.reconfigure(removed_limits=choices.removed_limits | {setting})
            return
        given = int(value) if setting == "max_tokens" else value
        await self._session.reconfigure(
            flags={**choices.flags, setting: given},
            changed_limits=choices.changed_limits | {setting},
            removed_limits=choices.removed_limits - {setting},
        )


class LimitReport(BaseObserver):
    """Names the limits when one of them stops a turn."""

    kinds = frozenset({TurnFinished})

    def __init__(
        self, list_limits: Callable[[], Sequence[LimitLine]], notify: Callable[[str], None]
    ) -> None:
        self._list_limits = list_limits
        self._notify = notify

    def on_event(self, event: Event) -> None:
        if type(event) is TurnFinished and event.result.reason == "budget_exceeded":
            limits = self._list_limits()
            if limits:
                self._notify(format_limits(limits))


def format_limits(limits: Sequence[LimitLine]) -> str:
    """The limits, and how to change them."""
    if not limits:
        return f"this session has no limit of cost, tokens or time; {USAGE}"
    lines = [f"{_format_limit(limit)}, set by {limit.origin}" for limit in limits]
    return "\n".join([*lines, *map(_format_advice, limits)])


def _format_advice(limit: LimitLine) -> str:
    """A command that raises the limit, with a value that is higher than what is used."""
    if limit.setting == "max_cost" and limit.used is None:
        return (
            "the price is not known: /budget off removes the limit, /budget tokens N sets another"
        )
    higher = math.ceil(2 * max(limit.value, limit.used or 0.0))
    if limit.setting == "max_cost":
        higher = max(higher, 10)
        return f"/budget {higher} raises the limit of this session to ${higher}"
    if limit.setting == "max_tokens":
        return f"/budget tokens {higher} raises the limit of this session to {higher:,} tokens"
    return f"/budget time {higher} raises the limit of a turn to {higher} seconds"


def _format_limit(limit: LimitLine) -> str:
    if limit.setting == "max_cost":
        spent = "an unknown amount" if limit.used is None else format_dollars(limit.used)
        return f"max_cost: {spent} of {format_dollars(limit.value)} spent"
    if limit.setting == "max_tokens":
        return f"max_tokens: {limit.used or 0:,.0f} of {limit.value:,.0f} tokens used"
    return f"max_time: {limit.value:g} seconds for a turn"


def parse_budget(arguments: str) -> tuple[str, float | None]:
    """The setting and its value: `10`, `$1.50`, `tokens 500,000`, `time 5m`; None for `off`."""
    *kind, amount = arguments.split()
    setting = _SETTINGS.get(" ".join(kind) or "cost")
    if setting is None:
        raise ConfigError(USAGE)
    if amount == LIMIT_OFF:
        return setting, None
    amount = amount.removeprefix("$")
    if setting == "max_tokens" and _THOUSANDS.fullmatch(amount):
        amount = amount.replace(",", "")
    if "," in amount:  # 1,50 and 1,500 have two readings
        example = amount.replace(",", ".")
        raise ConfigError(f"write the amount without a comma, for example {example}; {USAGE}")
    try:
        value = parse_setting(setting, [amount])
    except ConfigError:
        raise ConfigError(USAGE) from None
    if not isinstance(value, int | float) or not value:
        raise ConfigError(USAGE)
    return setting, value
