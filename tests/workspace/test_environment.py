from __future__ import annotations

import pytest

from treadle.workspace.environment import build_environment

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
    seen = build_environment(OURS, sandboxed=True)
    assert {"PATH", "HOME", "LC_ALL", "http_proxy"} <= seen.keys()
    unseen = {"ANTHROPIC_API_KEY", "GITHUB_TOKEN", "HTTPS_PROXY", "BASH_ENV", "LD_PRELOAD"}
    assert not seen.keys() & (unseen | {"MY_SETTING", "SSH_AUTH_SOCK"})
    assert seen["TERM"] == "dumb"


def test_outside_a_sandbox_the_doors_to_the_users_programs_stay_open() -> None:
    assert build_environment(OURS, sandboxed=False)["SSH_AUTH_SOCK"] == "/run/agent"


def test_the_user_lets_a_setting_through_by_name_but_not_a_key() -> None:
    seen = build_environment(OURS, sandboxed=True, passthrough=["MY_SETTING", "GITHUB_TOKEN"])
    assert seen["MY_SETTING"] == "1"
    assert "GITHUB_TOKEN" not in seen


def test_what_the_caller_gives_for_one_command_is_taken() -> None:
    seen = build_environment(OURS, sandboxed=True, extra={"PATH": "/opt", "MY_TOKEN": "meant"})
    assert seen["PATH"] == "/opt"
    assert seen["MY_TOKEN"] == "meant"


def test_of_locales_the_known_categories_pass_and_of_providers_nothing() -> None:
    ours = {
        **dict.fromkeys(("LANG", "LC_ALL", "LC_TIME", "LC_PAPER"), "C.UTF-8"),
        **dict.fromkeys(("LC_MYKEY", "LC_ANYTHING", "AWS_PROFILE"), "something"),
    }
    seen = build_environment(ours, sandboxed=False, passthrough=["AWS_PROFILE"])
    assert seen.keys() & ours.keys() == {"LANG", "LC_ALL", "LC_TIME", "LC_PAPER"}


@pytest.mark.parametrize("address", ["https://token@host/", "http://user:word@proxy:1"])
def test_a_url_with_a_password_is_not_passed_on(address: str) -> None:
    assert "GOPROXY" not in build_environment({"GOPROXY": address}, sandboxed=False)
    assert "GOPROXY" in build_environment({"GOPROXY": "https://host/,direct"}, sandboxed=False)
