"""Which files of a folder an approval includes, for common ways to write a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from treadle.hooks.approval import add_file_hashes
from treadle.hooks.script_hashes import ScriptHashes, hash_scripts

FILES = (
    *("x.sh", "my x.sh", "sub/x.sh", "srv.py", "sub/srv.py", "x.js", "dir/index.js", "Makefile"),
    *("package.json", "justfile", "hk/__init__.py", "hk/__main__.py", "hk/deep/one.py", "conf.mk"),
    "shop.db",
)


@pytest.fixture
def folder(own_place: Path) -> Path:
    root = own_place / "repo"
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "code.db").symlink_to("srv.py")
    return root


def hook(command: str, folder: Path) -> ScriptHashes:
    return hash_scripts({"event": "Stop", "command": command}, folder)


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("./x.sh", {"x.sh"}),
        ("bash -c './x.sh arg'", {"x.sh"}),
        ('eval "./x.sh foo"', {"x.sh"}),
        ("timeout 5 sh x.sh;true", {"x.sh"}),
        ("./x\\.sh", {"x.sh"}),
        ("$'./x.sh'", {"x.sh"}),
        ("sh 'my x.sh'", {"my x.sh", "x.sh"}),
        ("cd sub && ./x.sh", {"x.sh", "sub/x.sh"}),
        ("$PWD/x.sh", {"x.sh"}),
        ('"${PWD}"/sub/x.sh', {"sub/x.sh"}),
        ('sh "$CLAUDE_PROJECT_DIR"/x.sh', {"x.sh"}),
        ("${CLAUDE_PROJECT_DIR:-.}/x.sh", {"x.sh"}),
        ("${NOBODY_SET_THIS:-sub}/x.sh", {"sub/x.sh", "x.sh"}),
        ("make -s lint", {"Makefile"}),
        ("make -fconf.mk", {"Makefile", "conf.mk"}),
        ("npm run -s lint", {"package.json"}),
        ("pnpm lint", {"package.json"}),
        ("just lint", {"justfile"}),
        ("python3 -m hk", {"hk/__init__.py", "hk/__main__.py", "hk/deep/one.py"}),
        ("python3.11 -mhk.deep.one", {"hk/__init__.py", "hk/__main__.py", "hk/deep/one.py"}),
        ("node ./x", {"x.js"}),
        ("node ./dir", {"dir/index.js"}),
        ("jq -r '.a[]' | grep -q 'rm *' && { echo \"no: $?\" >&2; exit 2; }", set()),
        ("ruff check . >&2 || exit 2", set()),
    ],
)
def test_what_a_command_runs_is_found(folder: Path, command: str, files: set[str]):
    scripts = hook(command, folder)
    assert set(scripts.files) == files
    assert scripts.is_complete


@pytest.mark.parametrize(
    "command",
    [
        "./x.s?",
        "`echo ./x.sh`",
        '"$(git rev-parse --show-toplevel)"/x.sh',
        "S=./x; $S.sh",
        "set -- x; . ./$1.sh",
        "PWD=sub; $PWD/x.sh",
        "cat x.sh | sh",
        "find . -name x.sh -exec sh {} ';'",
        "python3 -c 'import hk'",
        "node .",  # which file that is, package.json says
        "pytest -q",
        "./x.sh 'an open quote",
        "./x.sh " + " ".join(map(str, range(1_100))),
        "./x.sh #" + "a" * 30_000,
    ],
)
def test_what_is_known_only_at_run_time_makes_the_hashes_incomplete(folder: Path, command: str):
    scripts = hook(command, folder)
    assert not scripts.is_complete
    assert add_file_hashes({"event": "Stop", "command": command}, folder)["unseen"]


def test_more_files_than_are_kept_are_unseen(folder: Path):
    names = [f"f{number}" for number in range(70)]
    for name in names:
        (folder / name).touch()
    scripts = hook(f"./x.sh {' '.join(names)}", folder)
    assert ("x.sh" in scripts.files, len(scripts.files), scripts.is_complete) == (True, 64, False)


@pytest.mark.parametrize(
    ("server", "files"),
    [
        ({"command": "python3", "args": ["srv.py"], "cwd": "sub"}, {"srv.py", "sub/srv.py"}),
        ({"command": "python3", "args": ["-m", "srv"]}, {"srv.py"}),
        ({"command": "python3", "args": ["-m", "srv"], "env": {"PYTHONPATH": "/x:sub"}},
         {"srv.py", "sub/srv.py"}),
        ({"command": "python3", "args": ["${NOBODY_SET_THIS:-.}/srv.py"]}, {"srv.py"}),
        ({"command": "launch", "args": ["--script=srv.py", "--only", "*"]}, {"srv.py"}),
        ({"command": "sh", "args": ["-c", "cd sub && exec ./x.sh"]}, {"x.sh", "sub/x.sh"}),
        ({"command": "npx", "args": ["-y", "some-server"]}, {"package.json"}),
        ({"command": "python3", "args": ["srv.py", "--db-path", "./shop.db"]}, {"srv.py"}),
        ({"command": "uvx", "args": ["shop-server", "--db=shop.db"]}, set()),
        ({"command": "shop", "args": ["-v"], "env": {"DATABASE": "shop.db"}}, set()),
        ({"command": "python3", "args": ["shop.db"]}, {"shop.db"}),
        ({"command": "./shop.db"}, {"shop.db"}),
        ({"command": "shop", "args": ["--db", "code.db"]}, {"code.db", "srv.py"}),
        ({"url": "https://example.org/?a=$(b)"}, set()),
    ],
)  # fmt: skip
def test_what_a_server_runs_is_found(folder: Path, server: dict[str, Any], files: set[str]):
    scripts = hash_scripts(server, folder)
    assert set(scripts.files) == files
    assert scripts.is_complete


def test_what_a_slash_command_only_writes_does_not_count(folder: Path):
    command = {"run": ["./x.sh > Makefile", "make lint | tee conf.mk"], "allow": []}
    assert set(hash_scripts(command, folder).files) == {"x.sh"}
    assert not hash_scripts({"run": ["$(./x.sh)"], "allow": []}, folder).is_complete


def test_a_file_that_appears_where_a_word_points_changes_the_binding(folder: Path):
    server = {"command": "npx", "args": ["some-server"]}
    before = hash_scripts(server, folder)
    program = folder / "node_modules/.bin/some-server"
    program.parent.mkdir(parents=True)
    program.touch()
    assert hash_scripts(server, folder) != before


def test_a_program_that_is_found_in_the_folder_by_the_path_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/serve").touch()
    monkeypatch.setenv("PATH", f"{folder}/.venv/bin:{os.environ['PATH']}")
    assert set(hash_scripts({"command": "serve"}, folder).files) == {".venv/bin/serve"}


def test_a_link_counts_by_where_it_leads_also_out_of_the_folder(folder: Path):
    (folder / "out").symlink_to("/bin/true")
    (folder / "in").symlink_to("way")
    (folder / "way").symlink_to("sub/x.sh")
    (folder / "round").symlink_to("round")
    assert hook("./out", folder).files == {"out": "-> /bin/true"}
    inside = hook("./in", folder).files
    assert (inside["in"], inside["way"]) == ("-> way", "-> sub/x.sh")
    assert set(inside) == {"in", "way", "sub/x.sh"}
    assert hook("./round", folder).files == {"round": "-> round"}


def test_pipes_do_not_block_and_odd_names_break_nothing(folder: Path):
    os.mkfifo(folder / "pipe")
    (folder / "odd").symlink_to(os.fsdecode(b"\xff"))
    assert hook("./pipe", folder).files == {}
    assert hook("./odd", folder).files == {"odd": "-> \\udcff"}
    assert add_file_hashes({"command": "a\0b", "args": ["\ud800", 3]}, folder)["unseen"]
