"""No wrong allow over the hostile cases in any mode, and no question about harmless lines."""

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.permissions.test_prefix_rules import OTHER_CODE, make_rules
from treadle.core.contracts.tool import Access
from treadle.permissions.findings import PolicyCall
from treadle.permissions.modes import PermissionMode
from treadle.permissions.policy import RulePolicy, build_policy_context
from treadle.permissions.rule_cases import CaseSetup, RuleCase, read_cases, run_cases
from treadle.permissions.ruleset.rules_file import parse_rules
from treadle.tools.builtin import describe_access

HERE = Path(__file__).parent
RULES = {
    "allow": [
        "Bash(npm test:*)", "Bash(npm run lint:*)", "Bash(pytest:*)", "Bash(cargo test:*)",
        "Bash(go test:*)", "Bash(make test:*)", "Bash(ruff check:*)", "Bash(mypy:*)",
        "Bash(uv run pytest:*)", "Bash(npx tsc:*)",
    ],
    "deny": ["Bash(rm:*)", "Read(.env)", "Edit(.git/**)"],
}  # fmt: skip
HARMLESS = """
    git status
    git status --short --branch
    git log --oneline -20 --graph --decorate
    git log --since='2 weeks ago' --format='%h %an %s'
    git diff HEAD~1 --name-only | grep -E '\\.py$' | sort -u
    git diff --stat
    git diff main...HEAD -- src | head -100
    git show HEAD --stat
    git blame -L 1,20 src/a.py
    git branch -a
    git rev-parse --abbrev-ref HEAD
    git remote -v
    git stash list
    git ls-files | wc -l
    git grep -n TODO
    git config user.name
    git describe --tags --always
    ls -la src && cat package.json | jq '.scripts'
    ls -R src | head -50
    cat README.md
    head -c 200 README.md | xxd | head -3
    tail -n 20 README.md
    sed -n '10,40p' src/a.py
    nl -ba src/a.py | sed -n '1,5p'
    wc -l src/*.py tests/*.py
    rg TODO
    rg -n 'def main' src -g '*.py'
    rg --files | head
    rg -l import | xargs wc -l
    find . -name '*.py' -exec wc -l {} +
    find src -name '*.py' -exec grep -ln def {} +
    find . -name '*.py' -exec grep -n 'def ' {} \\;
    find . -name '*.py' | xargs wc -l
    git check-ignore .env
    git ls-files .env
    ls -la .env
    stat .env
    env | grep PATH
    printenv PATH
    grep -rn 'TODO' src --include='*.py' | head -20
    grep -n main src/a.py
    find . -name '*.test.ts' -not -path '*/node_modules/*'
    find src -type f -size +10k
    tree -L 2 src
    du -sh src
    file src/a.py
    stat -c '%s %n' src/a.py
    md5sum src/a.py
    diff src/a.py src/b.ts
    sort README.md | uniq -c | sort -rn | head
    awk '{print $1}' README.md
    cut -d: -f1 README.md
    jq '.name' package.json
    which python3 pip node
    date +%F
    pwd
    basename $(pwd)
    echo "$HOME"
    printf '%s\\n' a b c | sort
    [ -d node_modules ] || echo missing
    test -f package.json && echo yes
    cd src && ls && cd ..
    while read -r f; do wc -l "$f"; done < <(git ls-files)
    for f in src/*.py; do echo "$f"; done
    column -t -s, README.md
    python3 --version
    curl --version
    php -v
    rustc -vV
    cargo version
    gcc -dumpversion
    g++ --version
    git help
    git submodule
    git tag -n1 foo
    git tag -n
    gzip -l a.gz
    gzip -tv a.gz
    nm -C src/a.o
    objdump -d src/a.o | head
    npm test 2>&1 | tail -40
    CI=1 npm test
    (npm test || true) | grep -c fail
    npm run lint -- --fix
    pytest -q tests/t.py::test_a
    timeout 60 pytest -x -k 'a and b'
    cargo test --release
    go test ./... -run TestA -count=1
    make test V=1 -j4
    ruff check src tests
    uv run pytest -q
    npx tsc --noEmit
    mypy src --strict
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    names = ("src/a.py", "src/b.ts", "tests/t.py", "README.md", ".env", "Makefile", "go.mod")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    (tmp_path / "package.json").write_text("{}")
    (tmp_path / ".gitignore").write_text(".env\n")
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("is_sandboxed", [False, True])
def test_harmless_reading_and_testing_lines_are_not_asked_about(project, is_sandboxed):
    rules = parse_rules(RULES, root=str(project), home="/h")
    policy = RulePolicy(build_policy_context(project, rules), sandboxed=is_sandboxed)
    lines = [line.strip() for line in HARMLESS.strip().splitlines()]
    calls = {c: PolicyCall("bash", Access(command=c, cwd=str(project))) for c in lines}
    asked = {
        c: r.reason for c, call in calls.items() if (r := policy.evaluate(call)).outcome != "allow"
    }
    assert len(lines) >= 60
    assert asked == {}


@pytest.mark.parametrize("mode", ["plan", "ask", "accept-edits", "auto"])
@pytest.mark.parametrize("kind", OTHER_CODE)
def test_no_command_that_runs_other_code_is_allowed_in_any_mode(mode: PermissionMode, kind):
    names, lines = OTHER_CODE[kind]
    files = dict.fromkeys((".env", ".env.local", ".envrc", ".npmrc", "deploy.pem", "src/a"), "")
    cases = [
        RuleCase(line.strip(), "bash", {"command": line.strip()}, {"allow": make_rules(names)})
        for line in lines.strip().splitlines()
    ]
    cases = [replace(case, setup=CaseSetup({**files, ".git/config": ""})) for case in cases]
    allowed = [o for o in run_cases(cases, describe_access, mode) if o.verdict == "allow"]
    assert [(o.id, o.reason) for o in allowed] == []


def test_in_the_sandbox_auto_mode_still_denies_what_a_rule_denies():
    known = [c for c in read_cases(HERE / "permission_cases.jsonl") if c.expect == "deny"]
    denied = [replace(c, setup=replace(c.setup, sandboxed=True)) for c in known if c.tool == "bash"]
    outcomes = list(run_cases(denied, describe_access, "auto"))
    assert [o for o in outcomes if o.verdict != "deny"] == []
