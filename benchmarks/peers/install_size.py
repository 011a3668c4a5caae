"""What an installed library costs before it does anything: its import, its packages, its size."""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

REPEAT = 3


def measure_import(python: Path, statement: str) -> dict[str, Any]:
    """Seconds of a process that imports the library, and of one that does nothing."""
    run_code(python, statement)
    packages = next((python.parents[1] / "lib").glob("python3.*/site-packages"))
    pairs = [(run_code(python, statement), run_code(python, "pass")) for _ in range(REPEAT)]
    count = f"{statement}\nimport sys; print(len(sys.modules))"
    return {
        "wall": statistics.median(wall for wall, _ in pairs),
        "base_wall": statistics.median(base for _, base in pairs),
        "modules": int(subprocess.check_output([str(python), "-c", count]).split()[-1]),
        "packages": len(list(packages.glob("*.dist-info"))),
        "mb": measure_environment(python) / 1e6,
    }


def run_code(python: Path, code: str) -> float:
    began = time.perf_counter()
    subprocess.run([str(python), "-c", code], check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def measure_environment(python: Path) -> int:
    """Bytes of all that was installed into an environment: packages, and programs such as `rg`."""
    packages = next((python.parents[1] / "lib").glob("python3.*/site-packages"))
    return measure_size(packages) + measure_size(python.parent)


def measure_size(folder: Path) -> int:
    """Bytes of all files, without compiled bytecode."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files if path.suffix != ".pyc")
