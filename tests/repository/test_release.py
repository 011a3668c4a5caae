"""What is published: the wheel and the sdist of this checkout, installed by pipx with each Python.

They are built once. pipx comes from the index or from uv's cache, the Pythons from scripts/pythons.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.install import ROOT, CannotInstall, find_uv
from treadle._version import __version__

pytestmark = [pytest.mark.slow]

REAL_ENVIRONMENT = dict(os.environ)  # each test has another home, without the cache of uv
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [
    line.rpartition(" ")[2]
    for line in PROJECT["classifiers"]
    if re.search(r"Python :: 3\.\d", line)
]
DISTRIBUTION = f"treadle-{__version__}"
COMMIT_FILE = "treadle/_commit.txt"


class Archives(NamedTuple):
    """The files of one release."""

    wheel: Path
    sdist: Path


def run(*argv: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        cwd=ROOT,
        env={**REAL_ENVIRONMENT, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    folder = tmp_path_factory.mktemp("release")
    build = (sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist")
    done = run(*build, "-d", folder)
    assert done.returncode == 0, done.stderr
    return Archives(
        folder / f"{DISTRIBUTION}-py3-none-any.whl",
        folder / f"{DISTRIBUTION}.tar.gz",
    )


def list_package() -> set[str]:
    """The files of the package in this checkout that belong into an archive."""
    files = [path for path in (ROOT / "src" / "treadle").rglob("*") if path.is_file()]
    return {
        path.relative_to(ROOT / "src").as_posix()
        for path in files
        if "__pycache__" not in path.parts
    }


# ------------------------------------------------------------------ what is in them


def test_the_wheel_has_the_package_and_its_license_and_no_more(archives: Archives):
    with zipfile.ZipFile(archives.wheel) as wheel:
        names = set(wheel.namelist())
        entry_points = wheel.read(f"{DISTRIBUTION}.dist-info/entry_points.txt").decode()
        prices = zlib.decompress(wheel.read("treadle/models/price_list.json"))
    about = {name for name in names if name.startswith(f"{DISTRIBUTION}.dist-info/")}
    assert names - about - {COMMIT_FILE} == list_package() - {COMMIT_FILE}
    assert f"{DISTRIBUTION}.dist-info/licenses/LICENSE" in about
    assert entry_points == "[console_scripts]\ntreadle = treadle.__main__:main\n"
    assert "treadle/py.typed" in names
    assert prices == (ROOT / "src/treadle/models/price_list.json").read_bytes()


def test_the_sdist_has_the_package_and_what_its_build_needs_and_no_more(archives: Archives):
    with tarfile.open(archives.sdist) as sdist:
        names = {name.removeprefix(f"{DISTRIBUTION}/") for name in sdist.getnames()}
    package = {name for name in names if name.startswith("src/")}
    inside = {name.removeprefix("src/") for name in package}
    assert inside - {COMMIT_FILE} == list_package() - {COMMIT_FILE}
    assert names - package == {
        ".gitignore",  # hatchling adds it: it says what to leave out
        "CHANGELOG.md",
        "LICENSE",
        "PKG-INFO",
        "README.md",
        "SECURITY.md",
        "pyproject.toml",
        "scripts/build_hook.py",
    }


def test_nothing_of_this_machine_is_in_the_archives(archives: Archives):
    with zipfile.ZipFile(archives.wheel) as wheel:
        texts = [wheel.read(name) for name in wheel.namelist()]
    own = [str(ROOT).encode(), str(Path.home()).encode() + b"/"]
    assert not [text[:80] for text in texts if any(path in text for path in own)]


def test_the_archives_and_a_checkout_say_their_commit(archives: Archives):
    commit = run("git", "rev-parse", "HEAD")
    if commit.returncode != 0:
        pytest.skip("this is not a git checkout, or git does not read it")
    with zipfile.ZipFile(archives.wheel) as wheel:
        assert commit.stdout.startswith(wheel.read(COMMIT_FILE).decode().strip())
    with tarfile.open(archives.sdist) as sdist:
        file = sdist.extractfile(f"{DISTRIBUTION}/src/{COMMIT_FILE}")
        assert file is not None
        assert commit.stdout.startswith(file.read().decode().strip())
    here = run(sys.executable, "-m", "treadle", "--version", PYTHONPATH=str(ROOT / "src"))
    assert here.stdout == f"treadle {__version__} (commit {commit.stdout[:12]})\n"


# ------------------------------------------------------------------ installed by pipx


def find_python(version: str) -> Path | None:
    """An interpreter of this version, on the path, of pyenv, or of scripts/pythons."""
    pyenv = Path(REAL_ENVIRONMENT.get("PYENV_ROOT") or Path(REAL_ENVIRONMENT["HOME"], ".pyenv"))
    found = [
        *([Path(one)] if (one := shutil.which(f"python{version}")) else []),
        *pyenv.glob(f"versions/{version}.*/bin/python"),
        *(ROOT / ".tools" / "python").glob(f"cpython-{version}.*/bin/python3"),
    ]
    return next((path for path in found if run(path, "-I", "-c", "").returncode == 0), None)


@pytest.mark.parametrize("version", PYTHONS)
def test_pipx_installs_the_wheel_and_the_program_runs_an_agent(
    version: str, archives: Archives, tmp_path: Path
):
    python = find_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here: uv python install {version}")
    try:
        uv = Path(find_uv())
    except CannotInstall as problem:
        pytest.skip(str(problem))
    folders = {"PIPX_HOME": "home", "PIPX_BIN_DIR": "bin", "PIPX_MAN_DIR": "man"}
    places = {name: str(tmp_path / folder) for name, folder in folders.items()}
    path = f"{uv.parent}{os.pathsep}{REAL_ENVIRONMENT['PATH']}"
    settings = {**places, "PATH": path, "UV_SYSTEM_CERTS": "1", "UV_COMPILE_BYTECODE": "0"}
    options = ("--backend", "uv", "--python", python)
    installed = run(uv, "tool", "run", "pipx", "install", *options, archives.wheel, **settings)
    if re.search("failed to fetch|dns error|network was disabled", installed.stderr.lower()):
        pytest.skip(f"pipx or a dependency could not be had: {installed.stderr[-300:]}")
    assert installed.returncode == 0, installed.stderr
    assert f"using Python {version}." in installed.stdout

    program = tmp_path / "bin" / "treadle"
    said = run(program, "--version", HOME=str(tmp_path))
    assert said.stdout.startswith(f"treadle {__version__}")
    script = (
        "import asyncio, treadle\n"
        "from treadle.models import Say, Scripted\n"
        "add = treadle.tool(lambda a, b: a + b, name='add', description='Add.', effect='pure')\n"
        "model = Scripted([Say(calls=[('add', {'a': 2, 'b': 3})]), '5'])\n"
        "print(asyncio.run(treadle.Agent(model, tools=[add]).run('2 + 3?')).text)\n"
    )
    own_python = tmp_path / "home" / "venvs" / "treadle" / "bin" / "python"
    ran = run(own_python, "-I", "-W", "error", "-c", script, HOME=str(tmp_path))
    assert (ran.stdout, ran.stderr) == ("5\n", "")
