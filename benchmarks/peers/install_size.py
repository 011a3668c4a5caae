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
    packages = find_packages(python)
    count = f"{statement}\nimport sys; print(len(sys.modules))"
    modules = int(subprocess.check_output([str(python), "-c", count]).split()[-1])
    return {
        "wall": run_code(python, statement) - run_code(python, "pass"),
        "modules": modules,
        "packages": len(list(packages.glob("*.dist-info"))),
        **measure_environment(python),
    }


def run_code(python: Path, code: str) -> float:
    began = time.perf_counter()
    subprocess.run([str(python), "-c", code], check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


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
