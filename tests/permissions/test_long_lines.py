"""Long command lines are evaluated without reading the same files again and again."""

import os
from pathlib import Path

import pytest

from treadle.core.contracts.tool import Access
from treadle.permissions.findings import PolicyCall, PolicyContext
from treadle.permissions.ruleset.rules_file import parse_rules
from treadle.permissions.suggestions import suggest_rules
from treadle.permissions.verdict import PermissionEvaluator

FILES = 240


@pytest.fixture
def context(tmp_path: Path) -> PolicyContext:
    for number in range(FILES):
        file = tmp_path / f"d{number % 12}/e{number % 4}/f{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    rules = parse_rules({"deny": ["Read(*.pem)"]}, root=str(tmp_path), home="/h")
    return PolicyContext(str(tmp_path), "/h", rules)


@pytest.mark.parametrize(
    "line",
    [
        "ls " + "*/*/* " * 400,
        "; ".join(["ls */*/*"] * 400),
        "; ".join(["bash -c 'ls */*/*'"] * 500),
        "; ".join(f"bash -c 'ls */*/* a{number}'" for number in range(300)),
        "; ".join(["grep -r x ."] * 400),
        "; ".join(f"grep -r x{number} ." for number in range(400)),
        "; ".join(f"bash -c 'npm run x{number}'" for number in range(500)),
    ],
)
def test_a_long_line_looks_at_each_file_only_a_few_times(context, line, monkeypatch):
    calls, lstat = [0], os.lstat

    def count(*arguments, **options):
        calls[0] += 1
        return lstat(*arguments, **options)

    monkeypatch.setattr(os, "lstat", count)
    call = PolicyCall("bash", Access(command=line, cwd=context.root))
    suggest_rules(call, PermissionEvaluator(context))
    assert calls[0] < 20 * FILES


def test_no_rules_are_suggested_for_more_commands_than_a_user_reads(context):
    line = "; ".join(f"npm run x{number}" for number in range(60))
    call = PolicyCall("bash", Access(command=line))
    assert suggest_rules(call, PermissionEvaluator(context)) == ()


def test_patterns_that_match_thousands_of_names_in_all_ask(context):
    names = " ".join(f"*/*/f*[0-9{'a' * number}]" for number in range(1, 60))
    call = PolicyCall("bash", Access(command=f"ls {names}", cwd=context.root))
    ruling = PermissionEvaluator(context).evaluate(call)
    assert ruling.outcome == "ask"
    assert "matches too many names to check" in ruling.reason
