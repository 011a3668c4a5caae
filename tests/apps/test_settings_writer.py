from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from treadle.apps.settings.load import load_settings
from treadle.apps.settings.writer import write_setting
from treadle.core.errors import ConfigError


@pytest.fixture
def file(own_place: Path) -> Path:
    file = own_place / "home/.treadle/config.toml"
    file.parent.mkdir()
    return file


def test_a_setting_is_written_where_there_was_no_file_and_counts(file: Path):
    assert write_setting("theme", "light") == file
    settings = load_settings(Path.cwd(), environ={})
    assert (settings.theme, settings.origin("theme")) == ("light", f"{file}:1")
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# of mine", '# of mine\ntheme = "light"\n'),
        ('theme = "dark"  # at night\n', 'theme = "light"  # at night\n'),
        ("a = 1\r\n'theme' = 'none'\r\n# b\r\n", "a = 1\r\n'theme' = \"light\"\r\n# b\r\n"),
        ('a = 1\n\n[aliases]\nx = "y"\n', 'a = 1\n\ntheme = "light"\n\n[aliases]\nx = "y"\n'),
        ('[aliases]\ntheme = "y"\n', 'theme = "light"\n\n[aliases]\ntheme = "y"\n'),
        (
            'a = """\ntheme = "dark"\n[b]\n"""\n',
            'theme = "light"\na = """\ntheme = "dark"\n[b]\n"""\n',
        ),
        ("a = [\n[1],\n[2]]\n", 'theme = "light"\na = [\n[1],\n[2]]\n'),
    ],
)
def test_everything_else_in_the_file_stays_as_it_is(file: Path, before: str, after: str):
    file.write_bytes(before.encode())
    write_setting("theme", "light")
    assert file.read_bytes().decode() == after
    assert tomllib.loads(after) == {**tomllib.loads(before), "theme": "light"}


@pytest.mark.parametrize("broken", [b"theme = \n", b"# \xff\n", b"theme.dark = 1\n"])
def test_a_file_that_cannot_be_changed_safely_is_left_alone(file: Path, broken: bytes):
    file.write_bytes(broken)
    with pytest.raises(ConfigError, match=r"config\.toml"):
        write_setting("theme", "light")
    assert file.read_bytes() == broken


def test_a_link_stays_a_link_and_the_mode_stays(file: Path, own_place: Path):
    real = own_place / "dotfiles.toml"
    real.write_text("max_turns = 3\n")
    real.chmod(0o640)
    file.symlink_to(real)
    write_setting("theme", "none")
    assert file.is_symlink()
    assert real.read_text() == 'max_turns = 3\ntheme = "none"\n'
    assert real.stat().st_mode & 0o777 == 0o640
