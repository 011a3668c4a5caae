"""Names that a line does not write out: patterns that become two files, names of backups."""

from pathlib import Path

import pytest

from tests.permissions.test_git_config import evaluate


@pytest.mark.parametrize("line", ["uniq *", "xxd *", "tar tf *.tar", "tar -tvf u*"])
def test_a_pattern_may_become_two_files_or_the_name_of_a_host(tmp_path: Path, line: str):
    assert evaluate(tmp_path, line, "ask") == "ask"


@pytest.mark.parametrize("line", ["uniq a", "xxd a", "tar tf a.tar", "date -Iseconds", "date -I"])
def test_one_file_is_read(tmp_path: Path, line: str):
    assert evaluate(tmp_path, line, "ask") == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "cp -b -S nvrc a.txt .e",
        "cp -b --suffix=rc a.txt .npm",
        "mv -b -S rc a.txt .npm",
        "ln -sfb -S nvrc a.txt .e",
    ],
)
def test_a_suffix_of_backups_is_asked_about_also_where_edits_are_not(tmp_path: Path, line: str):
    assert evaluate(tmp_path, line, "accept-edits") == "ask"


def test_a_plain_copy_is_not_asked_about_there(tmp_path: Path):
    (tmp_path / "a.txt").write_text("a")
    assert evaluate(tmp_path, "cp -b a.txt b.txt", "accept-edits") == "allow"


@pytest.mark.parametrize("name", ["terraform.tfstate", "prod.tfvars", "kubeconfig", ".vault-token"])
def test_more_files_with_secrets_are_asked_about(tmp_path: Path, name: str):
    assert evaluate(tmp_path, f"cat {name}", "ask") == "ask"
