"""Loops over the names of files, with programs that show sizes and counts."""

import pytest

from treadle.core.contracts.tool import Access
from treadle.permissions.findings import PolicyCall, PolicyContext
from treadle.permissions.ruleset.rules_file import parse_rules
from treadle.permissions.verdict import PermissionEvaluator


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
        "find / -exec grep KEY {} +",
        "find . -exec grep -f {} {} +",
        "find . -execdir grep KEY {} +",
        "find . -exec grep KEY {} + -exec sh {} +",
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


@pytest.mark.parametrize(
    "command",
    [
        "for f in *.py; do wc -l $f; done",
        "for f in src/*.py; do wc -l $f; head -3 ${f}; done",
        "git ls-files | xargs grep -n def",
        "git ls-files | grep py | xargs grep -n 'def main'",
        "find . -name '*.py' | xargs grep -ln TODO | head",
        "find . -name '*.py' -print0 | xargs -0 grep -n TODO",
    ],
)
def test_a_loop_over_files_and_a_search_in_listed_files_run_without_a_question(tmp_path, command):
    (tmp_path / "src").mkdir()
    for name in ("a.py", "src/b.py"):
        (tmp_path / name).write_text("def main(): pass")
    assert evaluate(tmp_path, command) == "allow"


@pytest.mark.parametrize("name", ["a --files0-from=x.py", "a b.py", "*.py", "-r.py"])
def test_a_loop_asks_if_the_shell_would_split_a_name(tmp_path, name):
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "c.py").write_text("x")
    (tmp_path / name).write_text("x")
    assert evaluate(tmp_path, "for f in ?*.py; do wc -l $f; done") == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "IFS=p; for f in *.py; do wc -l $f; done",
        "for f in *.py; do $f; done",
        "for f in *.py; do rm $f; done",
        "for f in *.py; do awk $f x; done",
        'for f in *.py; do awk "$f" x; done',
        "awk *.py x",
        "for f in /etc/*; do cat $f; done",
        "for f in *.py; do f=/etc/passwd; cat $f; done",
        "git ls-files | xargs -I{} grep x {}",
        "cat names | xargs grep x",
        "git ls-files | xargs grep -n x /etc/passwd",
        "git ls-files | xargs egrep x --include=/etc/passwd -f /etc/passwd",
    ],
)
def test_loops_and_searches_that_do_more_ask(tmp_path, command):
    (tmp_path / "a.py").write_text("x")
    assert evaluate(tmp_path, command) == "ask"


def test_a_search_in_listed_files_asks_if_one_of_them_may_not_be_read(tmp_path):
    command = "git ls-files | xargs grep -n def"
    (tmp_path / "a.py").write_text("x")
    rules = parse_rules({"deny": ["Read(.env)"]}, root=str(tmp_path), home="/h")
    context = PolicyContext(str(tmp_path), "/h", rules=rules)
    call = PolicyCall("bash", Access(command=command, cwd=str(tmp_path)))
    assert PermissionEvaluator(context).evaluate(call).outcome == "allow"
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert PermissionEvaluator(context).evaluate(call).outcome == "ask"
    (tmp_path / "link").unlink()
    (tmp_path / ".env").write_text("x")
    assert PermissionEvaluator(context).evaluate(call).outcome == "ask"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("find . -name '*.py' -exec grep KEY {} +", "allow"),
        ("find src -exec grep KEY {} +", "allow"),
        ("find . -exec grep KEY {} +", "ask"),
        ("find . -name .env -exec grep KEY {} +", "ask"),
        ("find . -name '*' -exec grep KEY {} +", "ask"),
        ("find . -exec grep KEY {} + -name '*.py'", "ask"),
        ("find . -name '*.py' -o -exec grep KEY {} +", "ask"),
        ("find . ! -name '*.py' -exec grep KEY {} +", "ask"),
        ("find src . -exec grep KEY {} +", "ask"),
        ("find . -name '*.py' -exec grep KEY .env {} +", "deny"),
    ],
)
def test_a_search_in_found_files_asks_if_a_denied_file_may_be_among_them(
    tmp_path, command, expected
):
    (tmp_path / "src").mkdir()
    for name in (".env", "src/a.py"):
        (tmp_path / name).touch()
    rules = parse_rules({"deny": ["Read(.env)"]}, root=str(tmp_path), home="/h")
    call = PolicyCall("bash", Access(command=command, cwd=str(tmp_path)))
    context = PolicyContext(str(tmp_path), "/h", rules)
    assert PermissionEvaluator(context).evaluate(call).outcome == expected
