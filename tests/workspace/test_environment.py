from __future__ import annotations

import pytest

from treadle.workspace.environment import for_command, is_secret

OURS = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "LC_ALL": "C",
    "SSH_AUTH_SOCK": "/run/agent",
    "ANTHROPIC_API_KEY": "sk-1",
    "GITHUB_TOKEN": "ghp",
    "HTTPS_PROXY": "http://user:word@proxy:1",
    "http_proxy": "http://proxy:1",
    "BASH_ENV": "/tmp/evil",
    "LD_PRELOAD": "/tmp/evil.so",
    "MY_SETTING": "1",
}


def test_a_command_sees_what_it_needs_and_no_key() -> None:
    seen = for_command(OURS, confined=True)
    assert {"PATH", "HOME", "LC_ALL", "http_proxy"} <= seen.keys()
    unseen = {"ANTHROPIC_API_KEY", "GITHUB_TOKEN", "HTTPS_PROXY", "BASH_ENV", "LD_PRELOAD"}
    assert not seen.keys() & (unseen | {"MY_SETTING", "SSH_AUTH_SOCK"})
    assert seen["TERM"] == "dumb"


def test_outside_a_sandbox_the_doors_to_the_users_programs_stay_open() -> None:
    assert for_command(OURS, confined=False)["SSH_AUTH_SOCK"] == "/run/agent"


def test_the_user_lets_a_setting_through_by_name_but_not_a_key() -> None:
    seen = for_command(OURS, confined=True, passed=["MY_SETTING", "GITHUB_TOKEN"])
    assert seen["MY_SETTING"] == "1"
    assert "GITHUB_TOKEN" not in seen


def test_what_the_caller_gives_for_one_command_is_taken() -> None:
    seen = for_command(OURS, confined=True, extra={"PATH": "/opt", "MY_TOKEN": "meant"})
    assert seen["PATH"] == "/opt"
    assert seen["MY_TOKEN"] == "meant"


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "X_TOKEN",
        "DB_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_PROFILE",
        "NPM_TOKEN_2",
        "GH_PAT",
        "SECRET_THING",
        "my_api_key",
        "CLIENT_SECRET",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ],
)
def test_these_names_are_keys(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["PATH", "KEYBOARD", "MONKEY", "PATTERN", "TOKENIZERS_PARALLELISM", "AUTHOR"]
)
def test_these_names_are_not(name: str) -> None:
    assert not is_secret(name)
