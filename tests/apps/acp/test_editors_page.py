"""The entries of docs/editors.md can be pasted: their files are valid, and their options exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

from treadle.apps.cli.options import parse_command_line

PAGE = (Path(__file__).parents[3] / "docs" / "editors.md").read_text()


def test_the_json_entries_are_valid_and_start_the_agent():
    entries = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    agents = [agent for entry in entries for agent in entry["agent_servers"].values()]
    assert len(agents) == 3
    for agent in agents:
        assert agent["command"].endswith("treadle")
        assert agent["args"][0] == "acp"
        assert parse_command_line(agent["args"][1:]).prompt is None
        assert isinstance(agent["env"], dict)


def test_the_lua_entries_start_the_agent():
    blocks = re.findall(r"```lua\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert '"treadle"' in block
        assert '"acp"' in block
        for left, right in ("()", "{}"):
            assert block.count(left) == block.count(right)
