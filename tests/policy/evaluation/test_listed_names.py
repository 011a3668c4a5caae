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
        "git ls-files | xargs wc -l",
        "find . -name '*.py' | xargs wc -l",
        "find . -name '*.py' -print0 | xargs -0 wc -l",
        "find . -type f | grep -v node_modules | sort | head -20 | xargs -r ls -lh",
        "rg -l import src | xargs wc -l",
        "grep -rl TODO src --include='*.py' | xargs wc -l",
        "rg --files -g '*.py' | xargs wc -l",
    ],
)
def test_sizes_of_listed_files_are_shown_without_a_question(tmp_path, command):
    assert evaluate(tmp_path, command) == "allow"
    (tmp_path / "--files0-from=x").write_text("x")
    assert evaluate(tmp_path, command) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "find . -name '*.py' -exec wc -l {} +",
        "find . -name '*.py' -exec wc -l {} \\;",
        "find src -type f -exec ls -lh {} +",
        "find . -name '*.py' -exec wc -l {} + | tail -1",
        "find . -not -path './node_modules/*' -type f -exec du -h {} +",
    ],
)
def test_sizes_of_found_files_are_shown_without_a_question(tmp_path, command):
    (tmp_path / "src").mkdir()
    (tmp_path / "--files0-from=x").write_text("x")  # find prints `./--files0-from=x`
    assert evaluate(tmp_path, command) == "allow"


@pytest.mark.parametrize("name", ["a --files0-from=x", "s/a\n--files0-from=x", "'-f", "s/d -c/e"])
def test_a_name_that_xargs_would_split_into_an_option_asks(tmp_path, name):
    command = "find . -type f | xargs wc -l"
    for plain in ("a - b.txt", "s/plain-name"):
        (tmp_path / plain).parent.mkdir(exist_ok=True)
        (tmp_path / plain).write_text("x")
    assert evaluate(tmp_path, command) == "allow"
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("x")
    assert evaluate(tmp_path, command) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "find . -exec cat {} +",
        "find . -exec grep KEY {} +",
        "find . -exec wc --files0-from={} \\;",
        "find . -exec wc --files0-from=.env {} +",
        "find . -exec file -f {} \\;",
        "find . -exec ./wc -l {} +",
        "find . -exec wc -l {} + -delete",
        "find . -exec wc -l {} + -exec rm {} +",
        "find . -execdir wc -l {} +",
        "find . -fprint x -exec wc -l {} +",
        "find . | xargs cat",
        "find . | xargs file -f",
        "find . | xargs -I% wc --files0-from=%",
        "find . | xargs -a names wc -l",
        "find . | xargs md5sum -c",
        "find . -printf '--files0-from=%p' | xargs wc -l",
        "git ls-files --format=x | xargs wc -l",
        "rg import | xargs wc -l",
        "rg -l --path-separator=- import | xargs wc -l",
        "grep -rn import . | xargs wc -l",
        "find . | grep -o x | xargs wc -l",
        "find . | sed s/x/-f/ | xargs file",
        "cat names | xargs wc -l",
        "xargs wc -l < names",
        "xargs wc -l",
        "find . | xargs rm",
        "find . | xargs sh -c 'wc -l'",
        "find . | xargs env wc -l",
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
