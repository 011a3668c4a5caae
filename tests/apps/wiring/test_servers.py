"""What a person hears of servers: which is away, and why, once."""

from __future__ import annotations

from treadle.apps.wiring.servers import Trouble
from treadle.tools.mcp import McpStatus
from treadle.tools.mcp.server import State


def heard(*states: State) -> list[str]:
    told: list[str] = []
    trouble = Trouble(told.append)
    for state in states:
        trouble.heard(McpStatus("db", state, 0, "it ended"))
    return told


def test_a_server_that_is_away_is_told_of_once_until_it_was_up_again():
    down = "the server db is down and is started again: it ended"
    assert heard("starting", "down", "starting", "down", "starting", "down") == [down]
    assert heard("starting", "up", "down", "starting", "up", "down") == [down, down]


def test_one_that_is_given_up_is_told_of_as_such():
    told = heard("starting", "down", "starting", "failed")
    assert told[1:] == ["the server db does not start: it ended"]
    assert heard("starting", "login") == ["it ended"]  # which says by itself what is wanted


def test_nothing_is_said_of_one_that_is_well():
    assert heard("starting", "up", "up", "closed") == []
