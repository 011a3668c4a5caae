from __future__ import annotations

import pytest

from treadle.lib.text.redaction import find_secrets, is_secret, redact

VALUE = "0123456789abcdef"


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEY", "OPENAI_KEY", "AZURE_OPENAI_KEY", "AWS_ACCESS_KEY_ID", "my_api_key"),
        *("GITHUB_PAT", "NPM_AUTH", "DB_PASS", "SSH_PASSPHRASE", "SESSION_COOKIE", "MYSQL_PWD"),
        *("OPENAI_API_KEY_2", "API_KEY1", "NPM_TOKEN_2", "PGPASSWORD", "CLIENT_SECRET", "KEY"),
        *("AWS_SECRET_ACCESS_KEY", "SECRET_THING", "X_TOKEN", "MY_CREDENTIALS", "LC_SECRETKEY"),
    ],
)
def test_a_key_is_known_by_the_name_of_its_variable(name: str) -> None:
    assert is_secret(name)
    assert find_secrets({name: VALUE}) == (VALUE,)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "PATH",
            "KEYBOARD",
            "MONKEY",
            "PATTERN",
            "TOKENIZERS_PARALLELISM",
            "AUTHOR",
            "MAX_TOKENS",
        ),
        *("GIT_AUTHOR_NAME", "GIT_ASKPASS", "PWD", "OLDPWD", "SSH_AUTH_SOCK", "LC_ALL", "LANG"),
        *("VAULT_AUTH_METHOD", "TOKEN_LIMIT", "SECRET_NAME", "KEY_FILE", "AWS_PROFILE"),
    ],
)
def test_other_names_and_names_about_keys_are_none(name: str) -> None:
    assert not is_secret(name)
    assert find_secrets({name: VALUE}) == ()


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("postgres://u:pw12345678@h/db", ("u:pw12345678@h", "pw12345678")),
        ("http://u:short@h:1", ("u:short@h:1",)),
        ("https://u:se%40cret-word@h", ("u:se%40cret-word@h", "se%40cret-word", "se@cret-word")),
        ("https://0123456789abcdef@host/,direct", (VALUE,)),
        ("postgres://postgres:postgres@localhost/dev", ()),
        ("ssh://git@example.org/x", ()),
        ("https://example.org/a@b", ()),
    ],
)
def test_what_stands_before_the_host_of_an_address_is_secret(
    address: str, found: tuple[str, ...]
) -> None:
    assert find_secrets({"SOME_URL": address}) == found


def test_a_web_address_with_a_token_is_no_setting_for_a_command() -> None:
    assert is_secret("GOPROXY", "https://token@host/")
    assert not is_secret("GOPROXY", "https://host/,direct")
    assert not is_secret("REPOSITORY", "ssh://git@host/x")


def test_what_is_short_a_place_or_everybodys_password_would_only_garble_texts() -> None:
    environ = {"A_TOKEN": "short", "A_KEY": "/home/me/key.pem", "DB_PASSWORD": "postgres"}
    assert find_secrets(environ) == ()


def test_longer_values_go_first_and_json_spells_some_otherwise() -> None:
    secrets = find_secrets({"A_KEY": VALUE, "B_KEY": f"{VALUE}-more", "C_KEY": 'quo"ted\\key'})
    assert redact(secrets, f"{VALUE}-more {VALUE}") == "[redacted] [redacted]"
    assert redact(secrets, 'quo"ted\\key and "quo\\"ted\\\\key"') == '[redacted] and "[redacted]"'


def test_a_long_value_is_read_once() -> None:
    long = "x" * 1_000_000
    assert find_secrets({"NOTE": f"{long} https://user:correct-horse@host"}) == (
        "user:correct-horse@host",
        "correct-horse",
    )
