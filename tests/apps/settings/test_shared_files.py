"""Files that terminal, page, editor and headless runs of one user change at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from treadle.apps.settings.folder_rules import open_trust_store

CHANGE = """
import sys
from pathlib import Path
from treadle.apps.console.mcp_definitions import add_definition
from treadle.apps.settings.folder_rules import make_rule_saver, open_trust_store
from treadle.apps.settings.rule_changes import change_rules, parse_rule_change
from treadle.apps.settings.writer import write_setting

who, folder = sys.argv[1], Path.cwd()
trust, always = open_trust_store(), make_rule_saver(folder)
for number in range(8):
    change_rules(folder, parse_rule_change(f"add deny Bash(danger-{who}-{number}:*) --user"))
    always((f"Bash(fine-{who}-{number}:*)",))
    trust.trust(folder / f"{who}-{number}")
    add_definition(f"{who}-{number}", {"command": "true"}, folder, for_project=False)
    write_setting(("max_cost", "max_tokens", "max_time")["abc".index(who)], number + 1)
"""


def test_programs_that_change_files_of_the_user_at_once_lose_nothing(tmp_path: Path):
    store = open_trust_store()
    store.trust(tmp_path)
    command = [sys.executable, "-c", CHANGE]
    programs = [subprocess.Popen([*command, name], cwd=tmp_path) for name in "abc"]
    assert [program.wait() for program in programs] == [0, 0, 0]
    names = sorted(f"{who}-{number}" for who in "abc" for number in range(8))
    settings = json.loads((Path.home() / ".treadle/settings.json").read_bytes())
    assert sorted(settings["permissions"]["deny"]) == [f"Bash(danger-{one}:*)" for one in names]
    assert sorted(settings["mcpServers"]) == names
    local = json.loads((tmp_path / ".treadle/settings.local.json").read_bytes())
    assert sorted(local["permissions"]["allow"]) == [f"Bash(fine-{one}:*)" for one in names]
    trust = open_trust_store()
    assert all(trust.is_trusted(tmp_path / one) for one in names)
    assert all(trust.has_accepted_rule(tmp_path, f"Bash(fine-{one}:*)") for one in names)
    config = tomllib.loads((Path.home() / ".treadle/config.toml").read_text())
    assert config == {"max_cost": 8, "max_tokens": 8, "max_time": 8}
    left = [path.name for path in (tmp_path / ".treadle").iterdir()]
    assert left == ["settings.local.json"]  # no locks in the project
