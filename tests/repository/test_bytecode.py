"""What tests/bytecode.py compiles is what the workers of xdist would make."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.bytecode import bytecode_of, compile_file, find_stale


def test_pytest_reads_the_compiled_test_files(tmp_path: Path, pytestconfig: pytest.Config):
    files = [tmp_path / name for name in ("conftest.py", "helpers.py", "test_one.py")]
    for file in files:
        file.write_text("def test_it():\n    assert 1 + 1 == 2\n")
    assert find_stale(tmp_path) == files
    for file in files:
        compile_file(file, pytestconfig)
    assert find_stale(tmp_path) == []
    code = rewrite._read_pyc(files[2], bytecode_of(files[2]))
    assert code is not None
    assert "@pytest_ar" in code.co_names  # the helper of rewritten asserts
    later = files[2].stat().st_mtime + 2
    os.utime(files[2], (later, later))
    assert find_stale(tmp_path) == [files[2]]
