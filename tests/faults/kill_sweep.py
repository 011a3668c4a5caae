"""Kill a run by SIGKILL at every one of its calls, and let fresh processes go on.

    PYTHONPATH=. python kill_sweep.py KIND FOLDER     KIND: kill, torn or done

A process of its own without threads, so that it can fork: a child is a real process that dies
really, and costs milliseconds. Prints how many were killed; the first violation ends it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from pathlib import Path

from tests.faults.storage_scenario import Run, check_end, new_run
from treadle.core.transcript.items import Item
from treadle.core.transcript.state import fold_entries
from treadle.sessions.log.journal import read_entries
from treadle.testing.faulty_files import FaultyFiles, FileFault


def in_child(folder: Path, files: FaultyFiles) -> int:
    """Run the scenario in a child; how it ended, as waitpid says it."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    status = 1
    try:
        asyncio.run(Run(folder, files).go())
        status = 0
    except BaseException:  # noqa: BLE001 - a child never returns into its parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def calls_of_a_clean_run(folder: Path) -> list[str]:
    """Done in a child too: a loop in the parent would leave threads that fork does not copy."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        files = FaultyFiles()
        asyncio.run(new_run(folder, files).go())
        os.write(into, "\n".join(files.calls).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        calls = pipe.read().split("\n")
    assert os.waitpid(child, 0)[1] == 0
    return calls


def whole_transcript(folder: Path) -> list[Item]:
    return list(fold_entries(read_entries(folder / "session")).transcript)


def main(kind: str, base: Path) -> int:
    calls = calls_of_a_clean_run(base / "whole")
    whole = whole_transcript(base / "whole")
    killed = 0
    for number, name in enumerate(calls, start=1):
        if kind == "torn" and not name.startswith("write"):
            continue
        folder = base / f"at-{number}"
        folder.mkdir()
        status = in_child(folder, FaultyFiles({number: FileFault(kind)}, send_sigkill=True))  # type: ignore[arg-type]
        assert os.WIFSIGNALED(status), (number, name)
        assert os.WTERMSIG(status) == signal.SIGKILL, (number, name)
        killed += 1
        run = Run(folder, FaultyFiles())
        kept = read_entries(run.place) if (run.place / "journal.jsonl").exists() else []
        known = run.acknowledged()
        assert kept[: len(known)] == known, f"I1: call {number} ({name})"
        assert in_child(folder, FaultyFiles()) == 0, f"I2: call {number} ({name})"
        check_end(run, whole_transcript(folder), whole)
    print(killed, "killed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
