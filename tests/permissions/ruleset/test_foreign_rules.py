"""Rules of settings files that were written for Claude Code and are not as they should be."""

import json
from pathlib import Path
from typing import Any

import pytest

from treadle.core.errors import ConfigError
from treadle.permissions.ruleset.rules_file import FoundRules, read_foreign_rules


def read(tmp_path: Path, permissions: Any) -> FoundRules:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"permissions": permissions}, indent=1))
    return read_foreign_rules(file, scope="x", root="/r", home="/h", within=None)


def test_a_rule_that_is_no_list_is_a_list_of_one(tmp_path: Path):
    found = read(tmp_path, {"deny": "Bash", "ask": "Edit(a.txt)", "allow": "Read(b.txt)"})
    lists = (found.rules.deny, found.rules.ask, found.rules.allow)
    assert [[rule.text for rule in rules] for rules in lists] == [
        ["Bash"],
        ["Edit(a.txt)"],
        ["Read(b.txt)"],
    ]
    assert (found.notes, found.warnings) == ([], [])


@pytest.mark.parametrize(
    ("permissions", "problem"),
    [
        (["Bash"], "settings.json:2: permissions must be an object"),
        ("Bash", "permissions must be an object"),
        ({"deny": {"Bash": True}}, "settings.json:3: permissions.deny must be a list of rules"),
        ({"deny": 5}, "permissions.deny must be a list of rules"),
        ({"ask": ["Bash", 5]}, "permissions.ask must be a list of rules"),
        ({"deny": ["(rm)"]}, "settings.json:4: '(rm)' is not a rule"),
    ],
)
def test_what_forbids_something_and_cannot_be_read_is_an_error(tmp_path, permissions, problem):
    with pytest.raises(ConfigError) as error:
        read(tmp_path, permissions)
    assert problem in str(error.value)


def test_a_deny_rule_that_is_not_understood_is_asked_about_and_that_is_a_warning(tmp_path: Path):
    found = read(tmp_path, {"deny": ["Agent(Explore)"], "allow": ["Agent(Plan)", "Read(a)"]})
    assert [rule.tool for rule in found.rules.ask] == ["task"]
    assert "Agent is asked about instead" in found.warnings[0]
    assert "it is not used" in found.notes[0]
    assert [rule.text for rule in found.rules.allow] == ["Read(a)"]


@pytest.mark.parametrize("permissions", [None, {}, {"deny": None}, {"deny": [" "]}])
def test_no_rule_is_no_problem(tmp_path: Path, permissions: Any):
    found = read(tmp_path, permissions)
    assert (found.rules.deny, found.notes, found.warnings) == ((), [], [])


@pytest.mark.parametrize("allow", [5, {"Bash": True}, ["Read(a)", 5]])
def test_an_allow_rule_that_cannot_be_read_is_left_out(tmp_path: Path, allow: Any):
    found = read(tmp_path, {"allow": allow})
    assert "permissions.allow must be a list of rules" in found.notes[0]
    assert len(found.rules.allow) == (1 if isinstance(allow, list) else 0)
