"""Configuration means what it means to the real git."""

from pathlib import Path

import pytest

from tests.lib.git.helpers import git
from treadle.lib.files.file_view import LOCAL_FILES
from treadle.lib.git.config import drop_subsection, read_config

TEXTS = [
    '[core]\n\tbare = false ; a comment\n[Remote "O"] url = "a b # c"\\\n  d\n',
    '\ufeff[a.b]\r\n\tc = x\\t\\"y\\"\\\\ # \\\n[d]\n\te\n\tf=\n',
    '[a "x\\"y]"]\n\tb-c = "1;" 2 ; 3\n#[core]\n',
    "[a]b=c\n[d]\n[e] f = g\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_entries_are_those_that_git_reads(tmp_path: Path, text: str):
    file = tmp_path / "config"
    file.write_text(text)
    listed = git(tmp_path, "config", "--file", str(file), "--list", "-z").split("\0")[:-1]
    expected = [(key.lower(), value) for key, _, value in (one.partition("\n") for one in listed)]
    found = read_config(LOCAL_FILES, str(file))
    assert found is not None
    assert [(key.replace('\\"', '"'), value) for key, value in found] == expected


@pytest.mark.parametrize(
    "text", ["a = b\n", "[a\n", '[a]\n\tb = "c\n', "[a]\n\tb c\n", "[a]\n b=\\x\n"]
)
def test_what_git_refuses_is_not_read(tmp_path: Path, text: str):
    file = tmp_path / "config"
    file.write_text(text)
    assert read_config(LOCAL_FILES, str(file)) is None
    file.unlink()
    assert read_config(LOCAL_FILES, str(file)) == []
    file.symlink_to("elsewhere")
    assert read_config(LOCAL_FILES, str(file)) is None


def test_a_key_without_its_subsection():
    assert drop_subsection("remote.a.b.url") == "remote.url"
    assert drop_subsection("core.bare") == "core.bare"
