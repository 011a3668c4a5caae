"""Which events are logged, at which level and with which text.

    ERROR     a turn failed
    WARNING   something is wrong, but the run continues; another model is used
    INFO      a model call is repeated; a call was denied
    DEBUG     turns, requests and calls: names and counts, no content of the conversation

Used by emitter.py, so that no observer is needed. Secrets of the environment are redacted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Final

from treadle.core.events import (
    Event,
    ModelChanged,
    RequestStarted,
    RetryScheduled,
    RunFailed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    WarningRaised,
)
from treadle.lib.logger import logger

# The level, and the text with the details of the event by their positions.
LOGGED_EVENTS: Final[Mapping[Callable[..., Event], tuple[int, str]]] = {
    RunFailed: (logging.ERROR, "the turn failed: {1}: {0}"),
    WarningRaised: (logging.WARNING, "{0}"),
    ModelChanged: (logging.WARNING, "{1} is used instead of {0}: {2}"),
    RetryScheduled: (logging.INFO, "attempt {0} failed, the next is in {1:.1f} s: {2}"),
    TurnStarted: (logging.DEBUG, "a turn starts"),
    RequestStarted: (logging.DEBUG, "request to {0}, attempt {1}"),
    ToolStarted: (logging.DEBUG, "call {0} of {1} starts"),
    ToolFinished: (logging.DEBUG, "call {0} of {1} ended"),
    TurnFinished: (logging.DEBUG, "the turn ended: {0.reason}"),
}


def log_event(
    kind: Callable[..., Event], details: tuple[object, ...], agent: str, session_id: str
) -> None:
    level, text = LOGGED_EVENTS[kind]
    if logger.isEnabledFor(level):
        from treadle.lib.text.redaction import find_secrets, redact  # not for every start

        message = redact(find_secrets(os.environ), text.format(*details))
        who = f"{agent}, session {session_id}" if agent else f"session {session_id}"
        logger.log(level, "%s: %s", who, message)
