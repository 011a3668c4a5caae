# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.program import PROGRAM, run
from treadle.apps.cli import main
from treadle.apps.cli.commands import completions, config
from treadle.apps.cli.main import COMMANDS, format_help
from treadle.apps.cli.options import OPTIONS, CliOption, parse_command_line
from treadle.apps.console import exit_codes
from treadle.apps.console.console import UsageError
from treadle.apps.conversation.attachments import find_mentions
from treadle.apps.conversation.commands.peer_names import PEER_SUBCOMMANDS
from treadle.sessions import Library
from treadle.workspace.command_limits import get_default_memory


def test_help_fits_a_screen():
    lines = format_help(COMMANDS).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100


def test_version_loads_no_engine():
    code = (
        "import sys; from treadle.apps.cli.main import run; run(['--version']); "
        "print(sorted(m for m in sys.modules if m in ('asyncio', 'typing', 'msgspec')))"
    )
    out = subprocess.run([PROGRAM[0], "-I", "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[1] == "[]"


async def test_doctor_checks_everything_and_says_what_to_do():
    ran = await run(None, "doctor")
    assert "! terminal  stdout is not a terminal" in ran.out
    for name in ("python", "terminal", "git", "ripgrep", "sandbox", "model", "keys", "sessions"):
        assert name in ran.out
    assert ran.code in (0, 1)
    assert "->" in ran.out
    assert "the check failed" not in ran.out


async def test_doctor_and_models_name_a_base_url_that_is_none():
    problem = "ANTHROPIC_BASE_URL: it does not begin with http:// or https://: 'notaurl'"
    ran = await run(None, "doctor", ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL="notaurl")
    assert ran.code == 1
    assert "✗ model" in ran.out
    assert problem in ran.out
    ran = await run(None, "models", ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL="notaurl")
    assert problem in ran.out
    assert "ANTHROPIC_API_KEY is set  " not in ran.out
    assert ran.out.endswith("It cannot be used: the table says why.\n")


async def test_doctor_checks_the_model_of_the_settings():
    ran = await run(None, "doctor", TREADLE_MODEL="no-such-model", ANTHROPIC_API_KEY="k")
    assert "✗ model" in ran.out
    assert "no-such-model" in ran.out


async def test_an_unknown_model_is_told_with_the_place_that_names_it(own_place: Path):
    ran = await run(None, "-p", "x", TREADLE_MODEL="nobody/x")
    assert ran.code == exit_codes.USAGE_ERROR
    assert "TREADLE_MODEL: no model or provider is called 'nobody/x'" in ran.err
    ran = await run(None, "-p", "x", "--model", "embedded", TREADLE_SMALL_MODEL="nobody/x")
    assert "TREADLE_SMALL_MODEL: no model or provider is called 'nobody/x'" in ran.err
    file = own_place / "home/.treadle/config.toml"
    file.parent.mkdir()
    file.write_text('model = "nobody/x"\n')
    assert f"{file}:1: no model or provider" in (await run(None, "-p", "x")).err


@pytest.mark.parametrize(
    "words", ["sessions", "sessions list --here", "sessions search x", "cost", "resume"]
)
def test_a_folder_of_sessions_that_cannot_be_read_is_an_error(words: str, monkeypatch, capsys):
    root, scan = Library().root, os.scandir

    def refuse(path: str) -> Iterator[os.DirEntry[str]]:
        if str(path) == str(root):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert main.run(words.split()) == exit_codes.IO_ERROR
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert f"{root} cannot be read: Permission denied" in captured.err


@pytest.mark.parametrize("name", ["../locked/a.txt", "/locked/a.txt"])
def test_a_mentioned_file_that_cannot_be_read_is_a_usage_error(name: str, monkeypatch, capsys):
    get_status = os.stat

    def refuse(path: object, **options: Any) -> os.stat_result:
        if "locked" in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return get_status(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", refuse)
    assert main.run(["-p", f"explain @{name}"]) == exit_codes.USAGE_ERROR
    assert f"treadle: {name} cannot be attached: Permission denied" in capsys.readouterr().err


async def test_config_and_doctor_name_an_added_folder_that_does_not_exist():
    missing = f"/nonexist-{os.getpid()}"
    ran = await run(None, "config", "add_dir", missing)
    assert ran.code == 0
    assert f"note: there is no folder {missing}" in ran.out
    ran = await run(None, "doctor")
    assert "! settings" in ran.out
    assert f"config.toml:1: there is no folder {missing}" in ran.out


def test_config_names_a_missing_file_once_in_the_home_folder(monkeypatch, capsys):
    monkeypatch.chdir(Path.home())
    assert config.run([]) == 0
    assert capsys.readouterr().out.count("config.toml does not exist") == 1


async def test_config_shows_the_limit_of_memory_that_holds_without_a_setting():
    ran = await run(None, "config", "command_memory")
    assert ran.out.startswith(f"{get_default_memory() >> 20}")
    assert "no limit" not in ran.out


async def test_config_stores_no_empty_value():
    for value in ("", "  "):
        ran = await run(None, "config", "model", value)
        assert ran.code == 2
        assert "model needs a value; `treadle config model --unset` removes it" in ran.err


def test_config_shows_each_value_with_its_origin(own_place: Path, capsys, monkeypatch):
    file = own_place / "home/.treadle/config.toml"
    file.parent.mkdir()
    file.write_text("max_turns = 7\n")
    monkeypatch.setenv("TREADLE_SANDBOX", "off")
    assert config.run([]) == 0
    rows = {
        line.split()[0]: line.split()[1:3] for line in capsys.readouterr().out.splitlines() if line
    }
    assert rows["max_turns"] == ["7", f"{file}:1"]
    assert rows["sandbox"] == ["off", "TREADLE_SANDBOX"]
    assert rows["max_cost"] == ["5", "default"]
    assert config.run(["--json"]) == 0
    values = json.loads(capsys.readouterr().out)["settings"]
    assert values["max_turns"] == {"value": 7, "origin": f"{file}:1"}


def test_config_of_a_broken_file_is_2_with_its_line(own_place: Path, capsys):
    file = own_place / "home/.treadle/config.toml"
    file.parent.mkdir()
    file.write_text("sandbx = 'off'")
    assert config.run([]) == exit_codes.USAGE_ERROR
    assert "did you mean 'sandbox'?" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_name_every_command_and_option(shell, capsys):
    assert completions.run([shell]) == 0
    script = capsys.readouterr().out
    for name in COMMANDS:
        assert name in script
    for option in OPTIONS:
        assert option.name in script
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True)


async def test_trust_lets_a_folders_files_count():
    Path("AGENTS.md").write_text("Always whistle.")
    Path(".treadle").mkdir()
    Path(".treadle/settings.json").write_text('{"permissions": {"allow": ["Bash(make:*)"]}}')
    before = await run(None, "permissions")
    ran = await run(None, "trust")
    assert ran.code == 0
    assert "AGENTS.md" in ran.out
    assert "Bash(make:*)" in ran.out
    after = await run(None, "permissions")
    assert "Bash(make:*)" not in before.out
    assert "Bash(make:*)" in after.out
    await run(None, "trust", "--remove")
    assert "Bash(make:*)" not in (await run(None, "permissions")).out


# ------------------------------------------------------------------ the command line


def test_options_are_read_in_any_order_and_form():
    line = parse_command_line(
        ["--model=x", "-p", "do it", "--allow", "A", "--allow", "B", "--max-turns", "3"]
    )
    assert line.prompt == "do it"
    assert line.texts("allow") == ("A", "B")
    assert line.settings() == {"model": "x", "max_turns": "3"}


def test_short_switches_may_stand_together():
    line = parse_command_line(["-pqc", "go"])
    assert line.has("print")
    assert line.has("quiet")
    assert line.has("continue")


@pytest.mark.parametrize("prompt", ["- a list item", "-", "--- a/file", "-> here"])
def test_a_prompt_that_begins_with_a_dash_is_no_option(prompt):
    assert parse_command_line(["-p", prompt]).prompt == prompt


def test_after_two_dashes_all_is_prompt():
    assert parse_command_line(["-p", "--", "--model"]).prompt == "--model"


@pytest.mark.parametrize("words", [["--model"], ["-rp"], ["--print=x"], ["-z"]])
def test_what_cannot_be_read_is_a_usage_error(words):
    with pytest.raises(UsageError):
        parse_command_line(words)


VALUED = [option for option in OPTIONS if option.metavar and not option.is_value_optional]


@pytest.mark.parametrize("option", VALUED, ids=lambda option: option.name)
@pytest.mark.parametrize("form", [["--{}", ""], ["--{}", " "], ["--{}="]], ids=repr)
def test_the_empty_value_of_an_unset_variable_is_an_error(option: CliOption, form: list[str]):
    words = [word.format(option.name) for word in form]
    with pytest.raises(UsageError, match=f"--{option.name} needs a value: {option.metavar}"):
        parse_command_line(["-p", "go", *words])


def test_resume_takes_the_next_word_as_id_unless_it_is_an_option():
    assert parse_command_line(["--resume", "abc", "go on"]).text("resume") == "abc"
    assert parse_command_line(["go on", "-r"]).options == {"resume": ""}
    assert parse_command_line(["-r", "--model=x"]).options == {"resume": "", "model": "x"}
    assert parse_command_line(["--resume", "--", "go on"]).prompt == "go on"


@pytest.mark.parametrize(
    "words", [["-p", "x", "--help"], ["--continue", "-h"], ["--model", "x", "--help"], ["-ph"]]
)
def test_help_is_printed_wherever_the_option_is(words: list[str], capsys):
    assert main.run(words) == exit_codes.SUCCESS
    assert capsys.readouterr().out == format_help(COMMANDS) + "\n"


def test_one_word_is_a_prompt_unless_it_is_nearly_a_command(monkeypatch):
    started: list[list[str]] = []

    def start(_module: str, words: list[str]) -> int:
        started.append(words)
        return 0

    monkeypatch.setattr(main, "run_module", start)
    for words in (["fix"], ["fix", "--model=x"], ["Prüfe"], ["--", "modles"]):
        assert main.run(words) == 0
        assert started.pop() == words
    for word in ("modles", "session", "cots", "Web", "undoo", *PEER_SUBCOMMANDS):
        assert main.run([word]) == exit_codes.USAGE_ERROR
    assert started == []


def test_paths_in_a_prompt_are_found_and_addresses_are_not():
    text = 'see @a.py, (@"b c.txt") and @src/d.py. Mail me@example.org or @@x'
    assert find_mentions(text) == ["a.py", "b c.txt", "src/d.py"]


def test_the_old_name_of_suspend_is_accepted_and_not_listed(capsys):
    assert parse_command_line(["-p", "--park"]).has("suspend")
    assert completions.run(["options"]) == 0
    assert "--park" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["fork"], "unknown command 'fork'; did you mean `treadle sessions fork`?"),
        (["modles"], "did you mean `treadle models`? As a prompt: treadle -- modles"),
        (["Sessions"], "unknown command 'Sessions'; did you mean `treadle sessions`?"),
        (["sesions", "--limit"], "did you mean `treadle sessions`?"),
        (["update"], "there is none here: it is updated as any Python package: see upgrade.md"),
        (["setup-token"], "treadle login keeps a key, or the variables of the environment have it"),
        (["exec", "fix the bug"], "unknown command 'exec'; here it is -p, --print"),
        (["exec", "--json", "fix it"], "unknown command 'exec'; here it is -p, --print"),
        (["fix"], "treadle: not a terminal; use -p PROMPT for one task, or --plain"),
        (["--", "modles"], "treadle: not a terminal; use -p PROMPT for one task, or --plain"),
        (["--resume"], "--resume needs the ID of a session without a terminal; `treadle sessions"),
        (
            ["-p", "x", "--resume"],
            "--resume needs the ID of a session with -p and --bg; `treadle sessions",
        ),
        (["fix", "the", "bug"], 'a prompt needs quotes: treadle "fix the bug"'),
        (["help", "nonsense"], "unknown command 'nonsense'; see `treadle --help`"),
        (["completions", "tcsh"], "no completions for 'tcsh'. Name the shell: bash, zsh or fish"),
        (["resume", "--nonsense"], "unknown option --nonsense"),
        (["-p", "x", "--thinking", "lots"], "--thinking cannot be 'lots'; it must be one of auto"),
        (
            ["-p", "x", "--max-budget-usd", "1"],
            "unknown option --max-budget-usd; here it is --max-",
        ),
        (["-p", "x", "--mode", "plan"], "unknown option --mode; here it is --permission-mode"),
        (["-p", "x", "--yolo"], "here it is --permission-mode bypass, --sandbox off (two"),
        (["-p", "x", "--agents", "{}"], "unknown option --agents; here it is /agents (definit"),
        (["-p", "x", "--debug"], "unknown option --debug; here it is --verbose"),
        (["-p", "x", "--session-id", "1"], "there is none here: each session gets an ID, which"),
        (["-p", "x", "-w"], "trust the folder first (`treadle trust`)"),
        (["-p", "x", "--modle", "y"], "unknown option --modle; did you mean --model?"),
        (["-p", "x", "--betas"], "unknown option --betas; see `treadle help options`"),
        (["-p", "x", "--system-prompt-file", "x"], "here it is --system-prompt (@PATH is"),
        (["-p", "x", "-a", "never"], "unknown option -a; here it is --permission-mode (untrusted"),
        (["-p", "x", "--permission-mode", "bypassPermissions"], "auto, bypass; here it is bypass"),
        (["-p", "x", "--sandbox", "no"], "--sandbox cannot be 'no'; it must be one of required"),
        (["-p", "x", "--until", ""], "treadle: --until needs a value: COMMAND"),
        (["mcp", "serve", "--http", "0", "--token-file="], "--token-file: its value is empty"),
        (["-p", "x", "--output-schema", "/no"], "cannot read /no: No such file or directory"),
        (["-p", "-c", "--resume", "x"], "--continue and --resume cannot be used together"),
        (["-p", "x", "-qv"], "--quiet and --verbose cannot be used together"),
    ],
)
def test_a_wrong_command_line_is_told_with_what_to_do(words: list[str], hint: str, capsys):
    assert main.run(words) == exit_codes.USAGE_ERROR
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("true", "$ must be an object"),
        ("{", "is not JSON: "),
        ('{"type": "strnig"}', "type cannot be 'strnig'"),
        ('{"properties": {"a": {"items": {"type": "x"}}}}', "$.properties.a.items: type cannot"),
        ('{"type": "object", "required": "a"}', "$.required must be a list"),
    ],
)
def test_a_wrong_schema_is_told_before_anything_is_sent(text: str, problem: str, capsys):
    Path("schema.json").write_text(text)
    assert main.run(["-p", "x", "--output-schema", "schema.json"]) == exit_codes.USAGE_ERROR
    assert problem in capsys.readouterr().err


def test_help_of_a_command_is_that_of_the_command(capsys):
    assert main.run(["help", "config"]) == 0
    assert capsys.readouterr().out == config.USAGE + "\n"


async def test_a_folder_to_add_that_does_not_exist_stops_the_run():
    ran = await run(None, "-p", "x", "--model", "embedded", "--add-dir", "/no/such")
    assert (ran.code, ran.err) == (2, "treadle: --add-dir: there is no folder /no/such\n")


@pytest.mark.parametrize(
    "words",
    ["doctor", "trust", "undo", "redo", "permissions", "sessions list --here", "sessions prune",
     "cost --here", "mcp list", "config", "prompt", "web", "-p x"],
)  # fmt: skip
def test_a_command_in_a_removed_folder_says_so_once(words: str, capsys):
    folder = Path("removed").absolute()
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()
    assert main.run(words.split()) == exit_codes.USAGE_ERROR
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert "the current folder no longer exists" in captured.err


def test_config_sets_a_value_in_the_users_file_and_keeps_the_comments(own_place: Path, capsys):
    file = own_place / "home/.treadle/config.toml"
    file.parent.mkdir()
    file.write_text("# mine\nmax_turns = 7  # enough\n")
    assert config.run(["max-turns", "9"]) == 0
    assert config.run(["add_dir", "/a", "/b c"]) == 0
    assert config.run(["max_time", "5m"]) == 0
    assert file.read_text() == (
        '# mine\nmax_turns = 9  # enough\nadd_dir = ["/a", "/b c"]\nmax_time = 300.0\n'
    )
    assert "max_turns is set in ~/.treadle/config.toml" in capsys.readouterr().out
    assert config.run(["max_turns", "--unset"]) == 0
    assert "here it is 200 (default)" in capsys.readouterr().out
    assert file.read_text() == '# mine\nadd_dir = ["/a", "/b c"]\nmax_time = 300.0\n'


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('modle = "x"', ["modle", "--unset"]),
        ('"my.model" = "x"', ["my.model", "--unset"]),
        ('max_turns = "many"', ["max-turns", "--unset"]),
    ],
)
def test_config_removes_the_line_that_makes_the_file_wrong(own_place: Path, line, words, capsys):
    file = own_place / "home/.treadle/config.toml"
    file.parent.mkdir()
    file.write_text(f"# mine\n{line}\nmax_cost = 3\n")
    assert config.run([]) == exit_codes.USAGE_ERROR
    assert config.run(words) == 0
    assert file.read_text() == "# mine\nmax_cost = 3\n"
    assert "is no longer in ~/.treadle/config.toml" in capsys.readouterr().out


def test_config_says_when_another_source_decides(capsys, monkeypatch):
    monkeypatch.setenv("TREADLE_SANDBOX", "off")
    assert config.run(["sandbox", "required"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "here it is off (TREADLE_SANDBOX)"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["max_turns", "many"], "max_turns cannot be 'many'; it must be a whole number, 0 or more"),
        (["max_turns", "1", "2"], "max_turns takes one value"),
        (["permission_mode", "bypass"], "only by the flag --permission-mode bypass"),
        (["aliases", "x"], "aliases is a table; edit "),
        (["max_trns", "--unset"], "unknown setting 'max_trns'; did you mean 'max_turns'?"),
        (["max_trns", "3"], "unknown setting 'max_trns'; did you mean 'max_turns'?"),
    ],
)
def test_config_changes_nothing_when_the_value_is_wrong(own_place, words, problem, capsys):
    assert config.run(words) == exit_codes.USAGE_ERROR
    assert problem in capsys.readouterr().err
    assert not (own_place / "home/.treadle/config.toml").exists()
