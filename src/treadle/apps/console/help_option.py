"""Whether the arguments of a command ask for its help. Imports nothing.

Commands with a parser of argparse do not use it: that has the same options.
"""

from __future__ import annotations


def wants_help(arguments: list[str]) -> bool:
    """`help` is the first word, or `--help` or `-h` stands anywhere before `--`."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return words[:1] == ["help"] or "--help" in words or "-h" in words
