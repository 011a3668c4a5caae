import json

import pytest

from treadle.core.errors import ConfigError
from treadle.permissions.ruleset.path_patterns import FolderCopy, compile_path_pattern
from treadle.permissions.ruleset.rules import InvalidRule, describe_rule_risk, parse_rule
from treadle.permissions.ruleset.rules_file import read_rules, save_rules


@pytest.mark.parametrize(
    "text",
    [
        "", "Bash(", "Bash()", "Bash(git status; rm x)", "Bash(a && b)", "Bash(echo $(id))",
        "Bash('open)", "Read()", "Read(!x)", "Read(~other/x)", "Read([a)", "WebFetch(x.org)",
        "WebFetch(domain:)", "mcp__", "mcp__*", "mcp__x__y(z)", "Todo(x)", "B*sh", "A=1",
        "Bash(A=1)",
    ],
)  # fmt: skip
def test_an_invalid_rule_is_an_error(text):
    with pytest.raises(InvalidRule):
        parse_rule(text)


@pytest.mark.parametrize(
    ("text", "path", "allowed"),
    [
        ("src/**", "/r/src/a/b", True),
        ("src/**", "/r/srcx/a", False),
        ("*.py", "/r/a/b.py", True),
        ("*.py", "/other/b.py", False),
        ("/src/*.py", "/r/src/a.py", True),
        ("/src/*.py", "/r/src/x/a.py", False),
        ("//etc/hosts", "/etc/hosts", True),
        ("/etc/hosts", "/etc/hosts", False),
        ("~/x/**", "/h/x/y", True),
        ("/r/a", "/r/a", True),
        ("a[0-9]", "/r/a5", True),
        ("a?c", "/r/a/c", False),
        ("**", "/r/x/y", True),
        ("../s/*", "/s/a", True),
    ],
)
def test_patterns_mean_what_gitignore_readers_expect(text, path, allowed):
    assert compile_path_pattern(text, "/r", "/h").allows(path) is allowed


def test_a_deny_pattern_holds_in_both_readings_and_any_case():
    pattern = compile_path_pattern("/etc/Passwd", "/r", "/h")
    assert pattern.forbids("/etc/passwd")
    assert pattern.forbids("/r/etc/PASSWD")


@pytest.mark.parametrize(
    ("text", "path", "forbidden"),
    [
        ("//r/**/a.txt", "/w/x/a.txt", True),
        ("//r/s/../a.txt", "/w/a.txt", True),
        ("//*/a.txt", "/w/x/a.txt", False),
        ("//*/x/a.txt", "/w/x/a.txt", True),
        ("//r", "/w/a.txt", True),
        ("~/x", "/w/x/a.txt", True),
        ("a.txt", "/W/x/A.txt", True),
        ("a.txt", "/w2/a.txt", False),
        ("//other/a.txt", "/w/a.txt", False),
    ],
)
def test_a_path_in_a_copy_of_a_folder_is_judged_as_that_in_the_folder(text, path, forbidden):
    pattern = compile_path_pattern(text, "/r", "/r").add_copy(FolderCopy("/w", "/r"))
    assert pattern.forbids(path) is forbidden
    if forbidden:
        prefixes = pattern.list_fixed_prefixes()
        assert any(path.lower().startswith(one.rstrip("/")) for one in prefixes)


@pytest.mark.parametrize(
    ("text", "forbidden"),
    [
        ("*.foo", True),
        ("a.foo", True),
        ("**/a.foo", True),
        ("*.{bar,foo}", True),
        ("**", True),
        ("x/a.foo", False),
        ("/x/**/a.foo", False),
        ("~/**/a.foo", False),
    ],
)
def test_a_rule_forbids_a_name_in_added_folders_and_allows_it_in_its_own(text, forbidden):
    pattern = compile_path_pattern(text, "/r", "/r").add_roots(["/added"])
    assert pattern.forbids("/added/x/a.foo") is forbidden
    assert not pattern.allows("/added/x/a.foo")


def test_rules_that_allow_any_code_are_warned_about():
    assert "any code" in describe_rule_risk(parse_rule("Bash(python3:*)"))
    assert "every command" in describe_rule_risk(parse_rule("bash"))
    assert describe_rule_risk(parse_rule("Bash(git status:*)")) == ""


def write(folder, settings):
    file = folder / "settings.json"
    file.write_text(settings if isinstance(settings, str) else json.dumps(settings, indent=1))
    return file


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ('{"permissions":\n {"allow": [\n  "Bash(git status:*)",\n  "Bash(a; b)"]}}', 4),
        ('{\n "permissions": {"deny": "Bash"}\n}', 2),
        ('{\n "permissions": []\n}', 2),
        ('{\n "permissions": {\n  "denied": ["Bash(rm:*)"]}}', 3),
        ("{\n oops", 2),
        ("[]", 1),
        ('{"permissions": {"deny": [3]}}', 1),
    ],
)
def test_fault_90_an_invalid_rules_file_is_refused_with_file_and_line(tmp_path, settings, line):
    file = write(tmp_path, settings)
    with pytest.raises(ConfigError, match=rf"settings\.json:{line}:"):
        read_rules(file, scope="here", root="/r", home="/h")


def test_fault_90_an_unreadable_rules_file_is_refused(tmp_path):
    (tmp_path / "settings.json").mkdir()
    with pytest.raises(ConfigError, match=r"settings\.json: is a folder"):
        read_rules(tmp_path / "settings.json", scope="here", root="/r", home="/h")


def test_rules_know_where_they_were_written(tmp_path):
    file = write(tmp_path, {"permissions": {"allow": ["Bash(ls:*)"], "deny": ["Read(.env)"]}})
    rules = read_rules(file, scope="everywhere", root="/r", home="/h")
    assert str(rules.deny[0].origin) == f"everywhere: {file}:7"


def test_saving_rules_keeps_the_rest_of_the_file(tmp_path):
    file = write(tmp_path, {"theme": "dark", "permissions": {"deny": ["Read(.env)"]}})
    save_rules(file, ("Bash(npm test:*)",), root="/r", home="/h")
    save_rules(file, ("Bash(npm test:*)", "Edit(/x)"), root="/r", home="/h")
    assert json.loads(file.read_text()) == {
        "theme": "dark",
        "permissions": {"deny": ["Read(.env)"], "allow": ["Bash(npm test:*)", "Edit(/x)"]},
    }
    assert file.stat().st_mode & 0o777 == 0o644  # the file of a project may be for a team
    with pytest.raises(InvalidRule):
        save_rules(file, ("Bash(a; b)",), root="/r", home="/h")


def test_rules_of_a_folder_are_neither_read_nor_saved_through_a_link_out_of_it(tmp_path):
    folder, outside = tmp_path / "ws", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (folder / ".treadle").symlink_to(outside)
    file = folder / ".treadle" / "settings.json"
    options = {"root": str(folder), "home": "/h", "within": folder}
    with pytest.raises(ConfigError, match="symlink"):
        save_rules(file, ("Bash(ls:*)",), **options)
    assert list(outside.iterdir()) == []
    write(outside, {"permissions": {"allow": ["Bash(ls:*)"]}})
    with pytest.raises(ConfigError, match="through a symlink"):
        read_rules(file, scope="this project", **options)
