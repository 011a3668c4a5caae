"""What an installed library costs before it does anything: its import, its packages, its size."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any


def measure_import(python: Path, statement: str) -> dict[str, Any]:
    """Seconds of a process that imports the library, without those of one that does nothing."""
    wall, modules = count_modules(python, statement)
    return {
        "wall": wall - count_modules(python, "pass")[0],
        "modules": modules,
        "packages": len(list(find_packages(python).glob("*.dist-info"))),
        **measure_environment(python),
    }


def count_modules(python: Path, statement: str) -> tuple[float, int]:
    """The seconds of a process that runs the statement, and how many modules it then has."""
    code = f"{statement}\nimport sys; print(len(sys.modules))"
    began = time.perf_counter()
    printed = subprocess.check_output([str(python), "-c", code], stderr=subprocess.DEVNULL)
    return time.perf_counter() - began, int(printed.split()[-1])


def find_packages(python: Path) -> Path:
    return next((python.parents[1] / "lib").glob("python3.*/site-packages"))


def measure_environment(python: Path) -> dict[str, float]:
    """MB of all that was installed into an environment: packages, and programs such as `rg`."""
    return measure_size(find_packages(python), python.parent)


def measure_interpreter() -> float:
    """MB of Python itself, with bytecode: the program, its library, the modules it comes with."""
    library = Path(sysconfig.get_path("stdlib"))
    shared = Path(sysconfig.get_config_var("LIBDIR")) / str(sysconfig.get_config_var("LDLIBRARY"))
    program = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    parts = [program, *([shared.resolve()] if shared.suffix == ".so" else [])]
    # What others added to it, its own tests, and what only compiling an interpreter needs.
    left_out = ("site-packages", "dist-packages", "test", "config-")
    parts += [one for one in library.iterdir() if not one.name.startswith(left_out)]
    return sum(measure_size(*parts).values())


def measure_size(*paths: Path) -> dict[str, float]:
    """MB of files and folders. Bytecode is counted for itself; that of `python -O` is left out."""
    files = [one for path in paths for one in ([path] if path.is_file() else path.rglob("*"))]
    sizes = {"mb": 0.0, "bytecode_mb": 0.0}
    for one in files:
        if one.is_file() and not one.is_symlink() and ".opt-" not in one.name:
            sizes["bytecode_mb" if one.suffix == ".pyc" else "mb"] += one.stat().st_size / 1e6
    return sizes
