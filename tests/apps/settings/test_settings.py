from __future__ import annotations

from pathlib import Path

import pytest

from treadle.apps.cli.options import parse_command_line
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.settings import SETTINGS_BY_NAME, Settings, is_narrower
from treadle.core.errors import ConfigError


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture
def user_file(own_place: Path) -> Path:
    return own_place / "home/.treadle/config.toml"


def here() -> Path:
    return Path.cwd()


def test_without_files_everything_is_a_default():
    settings = load_settings(here(), environ={})
    assert settings == Settings()
    assert settings.origin("model") == "default"


def test_the_later_place_wins_and_is_the_origin(user_file: Path):
    write(user_file, 'model = "sonnet"\nmax_turns = 10\nmax_time = "5m"\n')
    settings = load_settings(here(), {"max_turns": "30"}, environ={"TREADLE_MODEL": "opus"})
    assert (settings.model, settings.max_turns, settings.max_time) == ("opus", 30, 300.0)
    assert settings.origin("model") == "TREADLE_MODEL"
    assert settings.origin("max_turns") == "--max-turns"
    assert settings.origin("max_time") == f"{user_file}:3"


def test_a_project_may_only_narrow_and_only_where_it_is_trusted():
    write(
        here() / ".treadle/config.toml",
        'max_turns = 5\nmax_cost = 99\npermission_mode = "auto"\nsandbox = "required"\n'
        'network = true\nmodel = "opus"\n',
    )
    trusted = load_settings(here(), environ={}, is_trusted=lambda: True)
    assert (trusted.max_turns, trusted.sandbox) == (5, "required")
    assert (trusted.max_cost, trusted.permission_mode) == (5.0, "ask")
    assert (trusted.network, trusted.model) == (False, "")
    assert sum("may only narrow settings" in note for note in trusted.notes) == 4
    stranger = load_settings(here(), environ={}, is_trusted=lambda: False)
    assert stranger.max_turns == 200
    assert "not trusted" in stranger.notes[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('modle = "x"', "config.toml:1: unknown setting 'modle'; did you mean 'model'?"),
        ("\n\nmax_turns = -1", "config.toml:3: max_turns cannot be -1"),
        ("max_turns = 1.5", "a whole number"),
        ("max_turns = true", "a whole number"),
        ('sandbox = "maybe"', "one of required, auto, off"),
        ('permission_mode = "bypass"', "only by the flag --permission-mode bypass"),
        ("model = [1", "config.toml:1: not TOML"),
        ("aliases = 3", "must be a table"),
        ("model = 5", "config.toml:1: model cannot be 5; it must be a string"),
        ("web_search = true", "config.toml:1: web_search cannot be True; it must be a string"),
        (
            '[aliases]\nslow = "opus"\nfast = 5',
            "config.toml:3: the alias fast cannot be 5; it must be the name of a model (a string), "
            "or a table",
        ),
        ('max_time = "soon"', "such as 90, 5m or 2h"),
    ],
)
def test_a_wrong_file_is_said_with_its_line_and_what_to_do(user_file: Path, text, words):
    write(user_file, text)
    with pytest.raises(ConfigError) as caught:
        load_settings(here(), environ={})
    assert words in str(caught.value)


def test_a_file_that_is_not_text_is_said_with_its_line(user_file: Path):
    user_file.parent.mkdir()
    user_file.write_bytes(b'model = "x"\n# \xff\n')
    with pytest.raises(ConfigError, match=r"config\.toml:2: not UTF-8"):
        load_settings(here(), environ={})


@pytest.mark.parametrize(
    ("theirs", "ours"), [("acceptEdits", "accept-edits"), ("default", "ask"), ("dontAsk", "ask")]
)
def test_a_mode_may_have_the_name_of_claude_code(theirs: str, ours: str):
    line = parse_command_line(["-p", "x", "--permission-mode", theirs])
    assert load_settings(here(), line.settings(), environ={}).permission_mode == ours
    environ = {"TREADLE_PERMISSION_MODE": theirs}
    assert load_settings(here(), environ=environ).permission_mode == ours


def test_an_unknown_variable_is_noted_with_the_nearest():
    settings = load_settings(here(), environ={"TREADLE_MODLE": "x"})
    assert settings.notes == (
        "unknown environment variable TREADLE_MODLE; did you mean 'TREADLE_MODEL'?",
    )


def test_a_variable_that_is_read_elsewhere_is_not_unknown():
    environ = dict.fromkeys(("TREADLE_VERTEX_TOKEN_COMMAND", "TREADLE_PROJECT_DIR"), "x")
    assert load_settings(here(), environ=environ).notes == ()


def test_aliases_are_a_table(user_file: Path):
    write(user_file, '[aliases]\nfast = "anthropic/haiku"\n')
    settings = load_settings(here(), environ={})
    assert settings.aliases == {"fast": "anthropic/haiku"}
    assert settings.origin("aliases") == f"{user_file}:1"


def test_nothing_is_narrower_than_no_limit():
    assert is_narrower(SETTINGS_BY_NAME["max_tokens"], 10, None)
    assert not is_narrower(SETTINGS_BY_NAME["max_tokens"], 10, 5)
