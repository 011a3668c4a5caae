from collections import defaultdict
from pathlib import Path

import pytest

from treadle.core.errors import ConfigError
from treadle.policy.evaluation.rule_cases import NOT_EVALUATED, RuleCase, read_cases, run_cases
from treadle.tools.builtin import describe_access

HERE = Path(__file__).parent


def by_kind(file: str) -> dict[str, list[RuleCase]]:
    kinds: dict[str, list[RuleCase]] = defaultdict(list)
    for case in read_cases(HERE / file):
        kinds[case.tool].append(case)
    return kinds


@pytest.mark.parametrize("kind", sorted(by_kind("permission_cases.jsonl")))
def test_every_known_attack_and_control_gets_its_verdict(kind):
    outcomes = list(run_cases(by_kind("permission_cases.jsonl")[kind], describe_access))
    assert [o for o in outcomes if o.is_unexpected] == []
    assert kind == "sandbox" or all(o.verdict != NOT_EVALUATED for o in outcomes)


@pytest.mark.parametrize("kind", sorted(by_kind("cases.jsonl")))
def test_every_case_of_our_own_gets_its_verdict(kind):
    assert [
        o for o in run_cases(by_kind("cases.jsonl")[kind], describe_access) if o.is_unexpected
    ] == []


def test_every_verdict_says_why():
    assert all(o.reason for o in run_cases(read_cases(HERE / "cases.jsonl")[:50], describe_access))


def test_a_broken_line_is_named_by_file_and_number(tmp_path):
    file = tmp_path / "cases.jsonl"
    file.write_text('{"id": "A", "tool": "bash", "input": {}}\n{"id": 3}\n')
    with pytest.raises(ConfigError, match=r"cases.jsonl:2: not a case"):
        read_cases(file)
