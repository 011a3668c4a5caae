"""Options with which an allowed program would write a file that a rule denies writing."""

from pathlib import Path

import pytest

from treadle.core.contracts.tool import Access
from treadle.permissions.findings import PolicyCall
from treadle.permissions.policy import build_policy_context
from treadle.permissions.ruleset.rules_file import parse_rules
from treadle.permissions.verdict import PermissionEvaluator

ALLOWED = ["pytest", "npm test", "cargo test", "go test", "make test", "python3 -m pytest", "tsc"]
WRITING = """
    pytest --junitxml=infra/main.tf
    pytest --junitxml infra/main.tf
    pytest --junit-xml=infra/new.xml
    pytest --log-file=infra/x
    pytest -o log_file=infra/x
    pytest --override-ini=log_file=infra/x
    pytest --basetemp=infra
    pytest --basetemp infra
    pytest --cov-report=xml:infra/main.tf
    pytest -q --junitxml=./src/../infra/main.tf
    pytest --junitxml=link
    cd src && pytest --junitxml=../infra/main.tf
    python3 -m pytest --junitxml=infra/main.tf
    npm test --cache=infra
    npm test --logs-dir=infra
    npm test -- --outputFile=infra/main.tf
    npm test -- --outputFile infra/main.tf
    cargo test --target-dir infra
    cargo test --target-dir=infra
    go test -o infra/x
    go test -oinfra/x
    go test -coverprofile=infra/x
    go test -coverprofile infra/x
    tsc --outDir infra
    make test OUT=infra/main.tf
"""
READING = """
    pytest infra/tests
    pytest -x infra/tests
    pytest -q -k infra infra/tests
    pytest -xvs infra/tests/test_a.py::test_b
    pytest --cov=infra
    pytest --ignore=infra
    pytest --ignore infra
    pytest --junitxml=out/report.xml
    npm test -- infra
    cargo test -p infra
    go test -v ./infra/...
    go test -run TestA ./infra/...
    go test -coverprofile=cover.out ./infra/...
    make test V=1
"""


def split(lines: str) -> list[str]:
    return [line.strip() for line in lines.strip().splitlines()]


def evaluate(root: Path, command: str, *, denied: str, is_sandboxed: bool = False) -> str:
    allow = [f"Bash({name}:*)" for name in ALLOWED]
    rules = parse_rules({"allow": allow, "deny": [denied]}, root=str(root), home="/h")
    call = PolicyCall("bash", Access(command=command, cwd=str(root)), is_sandboxed=is_sandboxed)
    return PermissionEvaluator(build_policy_context(root, rules)).evaluate(call).outcome


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("infra/main.tf", "infra/tests/test_a.py", "src/a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("ours")
    (tmp_path / "link").symlink_to("infra/main.tf")
    return tmp_path


def test_an_option_that_would_write_a_denied_file_asks(project):
    outcomes = {c: evaluate(project, c, denied="Edit(infra/**)") for c in split(WRITING)}
    assert {c: o for c, o in outcomes.items() if o == "allow"} == {}


def test_a_folder_with_a_denied_file_in_it_asks(project):
    denied = "Edit(infra/main.tf)"
    assert evaluate(project, "cargo test --target-dir=infra", denied=denied) == "ask"
    assert evaluate(project, "cargo test --target-dir=src", denied=denied) == "allow"


def test_words_that_the_program_reads_are_not_asked_about(project):
    outcomes = {c: evaluate(project, c, denied="Edit(infra/**)") for c in split(READING)}
    assert {c: o for c, o in outcomes.items() if o != "allow"} == {}


def test_the_sandbox_makes_these_files_read_only_so_nothing_is_asked(project):
    command = "pytest --junitxml=infra/report.xml"
    assert evaluate(project, command, denied="Edit(infra/**)", is_sandboxed=True) == "allow"
