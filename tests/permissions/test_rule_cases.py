from collections import defaultdict
from pathlib import Path

import pytest

from treadle.permissions.rule_cases import (
    NOT_EVALUATED,
    CaseSetup,
    RuleCase,
    read_cases,
    run_cases,
)
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
    unexpected = {o.id: o.verdict for o in outcomes if o.is_unexpected}
    # `busybox rm`: the second file wants what the rule says of `rm`.
    assert unexpected == ({"P065": "deny"} if kind == "bash" else {})
    assert kind == "sandbox" or all(o.verdict != NOT_EVALUATED for o in outcomes)


@pytest.mark.parametrize("kind", sorted(by_kind("cases.jsonl")))
def test_every_case_of_our_own_gets_its_verdict(kind):
    assert [
        o for o in run_cases(by_kind("cases.jsonl")[kind], describe_access) if o.is_unexpected
    ] == []


def test_every_verdict_says_why():
    assert all(o.reason for o in run_cases(read_cases(HERE / "cases.jsonl")[:50], describe_access))


def test_a_broken_line_is_named_by_file_and_number_and_the_others_are_evaluated(tmp_path):
    file = tmp_path / "cases.jsonl"
    good = '{"id": "A", "tool": "bash", "input": {"command": "ls"}, "expect": "allow"}'
    rule = '{"id": "B", "tool": "bash", "input": {"command": "ls"}, "rules": {"deny": ["("]}}'
    file.write_text(f'{good}\n{{"id": 3}}\nnot json\n{rule}\n{good}\n')
    outcomes = list(run_cases(read_cases(file), describe_access))
    assert [o.verdict for o in outcomes] == ["allow", "error", "error", "error", "allow"]
    assert [o.is_unexpected for o in outcomes] == [False, True, True, True, False]
    assert "cases.jsonl:2: not a case" in outcomes[1].reason
    assert "cases.jsonl:3: not a case" in outcomes[2].reason


def test_only_a_newline_ends_a_line_of_cases(tmp_path):
    line = '{"id": "A", "tool": "bash", "input": {"command": "ls\u2028./x"}, "expect": "ask"}'
    (tmp_path / "cases.jsonl").write_text(f"{line}\n{line}\n", encoding="utf-8")
    outcomes = list(run_cases(read_cases(tmp_path / "cases.jsonl"), describe_access))
    assert [o.verdict for o in outcomes] == ["ask", "ask"]


def test_the_setup_of_a_case_can_say_that_the_folder_is_trusted(tmp_path):
    settings = {".treadle/settings.json": '{"permissions": {"allow": ["Bash(make:*)"]}}'}
    cases = [
        RuleCase(str(trusted), "startup", {"files": settings}, setup=CaseSetup(trusted=trusted))
        for trusted in (False, True)
    ]
    assert [o.verdict for o in run_cases(cases, describe_access)] == ["deny", "allow"]
    file = tmp_path / "cases.jsonl"
    file.write_text('{"id": "A", "tool": "read", "input": {}, "setup": {"trusted": true}}\n')
    assert read_cases(file)[0].setup.trusted
