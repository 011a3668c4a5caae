"""Where the program starts: by ./treadle, by `python -m treadle`, and by the installed command.

It holds nothing but the door to the command line, so that a start pays for no more, and the way
out: an interpreter that takes its modules apart one by one would add a fifth to a short run.
"""

# No import from __future__: that is a module, too, and would be looked for in the current folder.
import posix  # what `os` is made of: the interpreter itself has it, and a start pays nothing
import sys


def remove_cwd_from_sys_path() -> None:
    """Look for modules nowhere in the current folder, where `-m` and empty entries of PYTHONPATH
    would have them looked for first: whoever wrote the folder is not who wrote the program."""
    try:
        here = posix.getcwd()
    except OSError:  # it was removed
        here = ""
    # Somebody may stand where our own dependencies are installed.
    sys.path[:] = [p for p in sys.path if p not in ("", here) or p.endswith("-packages")]


remove_cwd_from_sys_path()

from treadle.apps.cli.main import run  # noqa: E402 - after that, and not before


def main() -> int:
    exit_code = run(sys.argv[1:])
    if "asyncio" in sys.modules:
        exit_now(exit_code)
    return exit_code


def exit_now(exit_code: int) -> None:
    """End the process now; commands have closed what they opened."""
    import os

    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            exit_code = exit_code or 74  # nobody took what was printed: exits.DISK
    os._exit(exit_code)


if __name__ == "__main__":
    sys.exit(main())
