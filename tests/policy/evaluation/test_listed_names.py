"""Loops over the names of files, with programs that show sizes and counts."""

import pytest

from treadle.core.contracts.tool import Access
from treadle.policy.evaluation.context import PolicyContext
from treadle.policy.evaluation.permission_evaluator import PermissionEvaluator
from treadle.policy.evaluation.ruling import PolicyCall


def evaluate(root, command):
    call = PolicyCall("bash", Access(command=command, cwd=str(root)))
    return PermissionEvaluator(PolicyContext(str(root), "/h")).evaluate(call).outcome


@pytest.mark.parametrize(
    "command",
    [
        'while read -r f; do wc -l "$f"; done < <(git ls-files)',
        'git ls-files | while read -r f; do wc -l "$f"; done',
        'git ls-files -m | sort -u | head -n 5 | while read f; do stat "$f"; done',
        'find . -name "*.py" -type f | while read -r f; do [ -s "$f" ] && wc -l "$f"; done',
    ],
)
def test_sizes_of_listed_files_are_shown_without_a_question(tmp_path, command):
    assert evaluate(tmp_path, command) == "allow"
    (tmp_path / "--files0-from=x").write_text("x")
    assert evaluate(tmp_path, command) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        'git ls-files | while read -r f; do cat "$f"; done',
        "git ls-files | while read -r f; do wc -l $f; done",
        'git ls-files --format=--files0-from=.env | while read -r f; do wc -l "$f"; done',
        'git ls-files | sed s/^/--files0-from=/ | while read -r f; do wc -l "$f"; done',
        'find . -printf "--files0-from=%p" | while read -r f; do wc "$f"; done',
        'echo --files0-from=.env | while read -r f; do wc "$f"; done',
        'head -1 names | while read -r f; do wc "$f"; done',
        'sort names | while read -r f; do wc "$f"; done',
        'while read -r f; do wc "$f"; done < names',
        'while read -r f; do wc "$f"; done <<< --files0-from=.env',
        'f=--files0-from=.env; git ls-files | while read -r g; do wc "$f"; done',
        'git ls-files | while read -r f; do wc "--files0-from=$f"; done',
        'git ls-files | while read -r f; do rm "$f"; done',
    ],
)
def test_other_names_and_other_programs_ask(tmp_path, command):
    assert evaluate(tmp_path, command) == "ask"
