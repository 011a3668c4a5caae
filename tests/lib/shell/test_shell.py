import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.patience import PATIENCE
from treadle.core.contracts.tool import Access
from treadle.lib.shell.ast import SimpleCommand
from treadle.lib.shell.syntax.parser import parse_command
from treadle.permissions.findings import PolicyCall, PolicyContext
from treadle.permissions.ruleset.rules_file import parse_rules
from treadle.permissions.verdict import PermissionEvaluator


def argvs(text: str) -> list[list[str | None]]:
    return [
        [w.text for w in command.argv] for command in parse_command(text).commands if command.argv
    ]


def everything(commands: tuple[SimpleCommand, ...]) -> list[str | None]:
    names: list[str | None] = []
    for command in commands:
        names += [command.name, *everything(command.inner)]
    return names


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git status", [["git", "status"]]),
        ("a; b && c || d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a $'x\\ty'", [["a", "x\ty"]]),
        ("a {b,c}{1,2}", [["a", "b1", "b2", "c1", "c2"]]),
        ('a "$x"', [["a", None]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("for x in 1; do a; done", [["a"]]),
        ("case x in y) a;; *) b;; esac", [["a"], ["b"]]),
        ("(a; b) > f", [["a"], ["b"]]),
        ("a > f b", [["a", "b"]]),
        ("! a", [["a"]]),
    ],
)
def test_every_simple_command_is_listed_wherever_it_stands(line, expected):
    parsed = parse_command(line)
    assert argvs(line) == expected
    assert parsed.doubts == ()


@pytest.mark.parametrize(
    ("line", "only_reads"),
    [
        ("for f in *.py; do head -1 $f; done", True),
        ("X=$(cat f); echo $X", True),
        ("name_1=a; cat $name_1", True),
        ("for f in *.py; do rm $f; done", False),
        ("for f in *; do $f; done", False),
        ("X=$(rm f); echo $X", False),
        ("X=-delete; find . $X", False),
        ("PATH=.; ls", False),
        ("GIT_DIR=x; git status", False),
        ("x=1 ls", False),
        ("export x=1; ls", False),
        ("x=1 > f", False),
    ],
)
def test_a_line_that_sets_variables_of_its_own_and_reads_only_reads(line, only_reads):
    assert parse_command(line).only_reads is only_reads


@pytest.mark.parametrize(
    ("line", "inner"),
    [
        ("timeout -s KILL 5 env A=1 nice -n 3 rm x", "rm"),
        ("bash -c 'ls; rm x'", "rm"),
        ("eval 'eval \"rm x\"'", "rm"),
        ("sudo -u root -- sh -c 'rm x'", "rm"),
        ("find . -exec sh -c 'rm \"$1\"' _ {} \\;", "rm"),
        ("ls | xargs -0 -n 1 rm", "rm"),
        ('echo "$(echo $(rm x))"', "rm"),
    ],
)
def test_what_wrappers_run_is_found_at_any_depth(line, inner):
    assert inner in everything(parse_command(line).commands)


@pytest.mark.parametrize(
    "line",
    [
        "echo ${",
        "echo 'open",
        "if true",
        "a\u00a0b \u2003 c d\u000be",
        "f() { ls; }",
        "((x=1))",
        "a[1]=2",
        "cat <<A <<B\nA\nB\n",
        "echo " + "$(" * 200 + ")" * 200,
        "echo {001..3}",
    ],
)
def test_what_is_not_understood_is_a_doubt_and_never_a_crash(line):
    parsed = parse_command(line)
    assert parsed.doubts or parsed.commands[0].argv[0].text not in ("a", "echo")


def test_a_word_split_by_a_continued_line_is_not_taken_for_two():
    parsed = parse_command("r\\\nm x")
    seen = [
        [w.text for w in command.argv] for command in (*parsed.commands, *parsed.guessed_commands)
    ]
    assert ["rm", "x"] in seen


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a \\\n\nb", [["a"], ["b"]]),
        ("a \\\\\nb", [["a", "\\"], ["b"]]),
        ("a # \\\nb", [["a"], ["b"]]),
        ("a 'x\\\ny'", [["a", "x\\\ny"]]),
        ('a "x\\\ny"', [["a", "xy"]]),
        ('a "$\\\n(b)"', [["b"], ["a", None]]),
        ("a \\\n  -b \\\n  c", [["a", "-b", "c"]]),
        ("a &\\\n& b", [["a"], ["b"]]),
        ("a <<E\nx\\\nE\nb\nE", [["a"]]),
        ("a <<'E'\nx\\\nE\nb", [["a"], ["b"]]),
    ],
)
def test_continued_lines_are_joined_where_bash_joins_them(line, expected):
    assert argvs(line) == expected
    assert parse_command(line).doubts == ()


@pytest.mark.parametrize(
    "line", ["a `b \\\nc`", "a ${x:-\\\n'b'}", "a $((x\\\n))", "case a in a) b \\\n;; esac"]
)
def test_a_continued_line_that_needs_a_parser_is_a_doubt(line):
    assert parse_command(line).doubts


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("{q},#a}", ["q}", "#a"]),
        ("{k},}", ["k}"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"]),
        ("{}{a,b}", ["{}a", "{}b"]),
        ("{a}", ["{a}"]),
        ("{a,b", ["{a,b"]),
        ("a{,b}", ["a", "ab"]),
        ("{3..1}x", ["3x", "2x", "1x"]),
        ("{'a,b',c}", ["a,b", "c"]),
        ("{a\\,b}", ["{a,b}"]),
    ],
)
def test_braces_expand_as_in_bash(word, expected):
    assert argvs(f"p {word}") == [["p", *expected]]


@pytest.mark.parametrize(
    "line", ["--a=b p", "[[a == b ]]", "[[-f a ]]", "[ a\n]", "time -p -p a", "coproc a"]
)
def test_what_only_looks_like_something_else_is_a_doubt(line):
    parsed = parse_command(line)
    assert parsed.doubts or any(command.doubts for command in parsed.commands)


def test_where_cd_leads_is_kept_for_each_later_command():
    cd_paths = [p.cd_paths for p in parse_command("cd a && cd b && x; y").commands]
    assert cd_paths == [((),), (("a",),), (("a", "b"),), ((), ("a",), ("a", "b"))]


def test_a_loop_that_moves_makes_the_place_unknown():
    last = parse_command("while true; do cd ..; done; cat x").commands[-1]
    assert last.cd_paths is None


QUOTED = ["'c d'", '"e f"', "\\ ", "\\\\", "$'g\\nh'", "''", "'", '"', "\\\n"]
PLAIN = ["a", "b", " ", "  ", "{i,j}", "{1..3}", "~", "#", "=", "-", "{", "}", "[", "]", "!", "é"]
PIECES = st.lists(st.sampled_from([*QUOTED, *PLAIN, ";", "&&", "|", "\n"]), min_size=1, max_size=9)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is the judge here")
@settings(max_examples=150, deadline=None)
@given(PIECES)
def test_words_without_doubts_are_the_words_that_bash_makes(pieces):
    line = "p " + "".join(pieces)
    parsed = parse_command(line)
    static = all(w.text is not None and not w.has_tilde for p in parsed.commands for w in p.argv)
    if parsed.doubts or not static or any(p.assignments or p.doubts for p in parsed.commands):
        return
    names = {p.argv[0].text for p in parsed.commands if p.argv}
    if names - {"p"}:
        return
    if subprocess.run(["bash", "-nc", line], capture_output=True, check=False).returncode:
        return  # bash would run nothing of it
    script = "set -f; p() { printf '%s\\0' \"$@\"; printf '\\1\\0'; }\n" + line
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, timeout=PATIENCE, check=False
    )
    expected = "".join(
        "".join(f"{w.text}\0" for w in p.argv[1:]) + ("\0" if len(p.argv) == 1 else "") + "\1\0"
        for p in parsed.commands
    )
    if "||" not in line and "&&" not in line and "|" not in line and "!" not in line:
        assert done.stdout.decode() == expected


NAMES = ["bash", "env", "git", "sed", "awk", "find", "tar", "timeout", "xargs", "eval", "time"]
NAMES += ["coproc", "-c", "-S", "-i", "-exec", "+", "{}"]
MARKS = ["''", "$(", "'", '"', "`", "<<E", "\n", ";", "(", ")", "[[", ">&", "{", "}", "!"]
FRAGMENTS = st.lists(
    st.one_of(st.sampled_from(NAMES), st.sampled_from(MARKS), st.text(max_size=3)), max_size=8
)


@settings(max_examples=200, deadline=None)
@given(FRAGMENTS)
def test_no_line_crashes_the_evaluator(fragments):
    call = PolicyCall("bash", Access(command=" ".join(fragments)))
    rules = parse_rules({"allow": ["Bash"], "deny": ["Bash(rm:*)"]}, root="/r", home="/h")
    assert PermissionEvaluator(PolicyContext("/r", "/h", rules)).evaluate(call).outcome in (
        "allow",
        "ask",
        "deny",
    )
