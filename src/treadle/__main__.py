"""Entry point of ./treadle, `python -m treadle` and the installed command.

Calls the command line, and ends the process without the interpreter's cleanup, which would add a
fifth to a short run. Imports as little as possible.
"""

# No import from __future__: that is a module, too, and would be searched in the current folder.
import posix  # the built-in part of `os`: costs nothing at start
import sys


def remove_cwd_from_sys_path() -> None:
    """Import nothing from the current folder, which `-m` and empty entries of PYTHONPATH put
    first: the project must not replace modules of the program."""
    try:
        here = posix.getcwd()
    except OSError:  # it was removed
        here = ""
    # Keep it if it is the folder where our dependencies are installed.
    sys.path[:] = [p for p in sys.path if p not in ("", here) or p.endswith("-packages")]


remove_cwd_from_sys_path()

from treadle.apps.cli.main import run  # noqa: E402 - the search path has to be safe first


def main() -> int:
    exit_code = run(sys.argv[1:])
    if "asyncio" in sys.modules:
        exit_now(exit_code)
    return exit_code


def exit_now(exit_code: int) -> None:
    """End the process without cleanup; commands have closed what they opened."""
    import os

    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            exit_code = exit_code or 74  # exit_codes.IO_ERROR: the output is lost
    os._exit(exit_code)


if __name__ == "__main__":
    sys.exit(main())
