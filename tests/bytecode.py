"""Compiles the package and the tests once, before the workers of xdist import them.

In a fresh clone there is no bytecode, and each worker would compile every file by itself: pytest
rewrites the asserts of test files, which takes longer than all imports. Used by conftest.py.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import py_compile
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

ROOT = Path(__file__).parents[1]


def compile_once(config: pytest.Config) -> None:
    """In as many processes as there are cores. A file with an error is left to its import."""
    if sys.dont_write_bytecode:
        return
    stale = [file for folder in ("src", "tests") for file in find_stale(ROOT / folder)]
    processes = []
    for core in range(count := os.cpu_count() or 1):
        if (pid := os.fork()) == 0:
            try:
                compile_files(stale[core::count], config)
            finally:
                os._exit(0)
        processes.append(pid)
    for pid in processes:
        os.waitpid(pid, 0)


def find_stale(folder: Path) -> list[Path]:
    files = sorted(folder.rglob("*.py"))
    return [file for file in files if not is_newer(bytecode_of(file), file)]


def is_newer(made: Path, source: Path) -> bool:
    return made.exists() and made.stat().st_mtime >= source.stat().st_mtime


def bytecode_of(file: Path) -> Path:
    if has_rewritten_asserts(file):
        return rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
    return Path(importlib.util.cache_from_source(str(file)))


def has_rewritten_asserts(file: Path) -> bool:
    return file.name.startswith("test_") or file.name == "conftest.py"


def compile_files(files: list[Path], config: pytest.Config) -> None:
    for file in files:
        with contextlib.suppress(OSError, SyntaxError, py_compile.PyCompileError):
            compile_file(file, config)


def compile_file(file: Path, config: pytest.Config) -> None:
    made = bytecode_of(file)
    if not has_rewritten_asserts(file):
        py_compile.compile(str(file), str(made), doraise=True)
        return
    made.parent.mkdir(exist_ok=True)
    status, code = rewrite._rewrite_test(file, config)
    state = config.stash[rewrite.assertstate_key]
    rewrite._write_pyc(state, code, status, made)
