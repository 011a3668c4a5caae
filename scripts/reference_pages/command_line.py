"""The page of the command line: every help text of the program, as it prints them."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from unittest.mock import patch

from scripts.reference_pages.markdown import make_page

SUBCOMMAND = re.compile(r"^    (\w[\w-]*)(?: {2,}|$)", re.MULTILINE)
WIDTH = "80"  # argparse wraps its lines at the width of the terminal


def write_page() -> str:
    from treadle.apps.cli.main import COMMANDS

    parts = ["What `--help` prints. [The guide](../cli.md) explains it."]
    for words in ([], ["help", "options"], *([name] for name in COMMANDS)):
        parts += show_help(words)
    return make_page("Commands and options", *parts)


def show_help(words: list[str]) -> Iterator[str]:
    line = words if words[:1] == ["help"] else [*words, "--help"]
    text = print_help(line)
    yield f"## treadle {' '.join(words)}".rstrip()
    yield f"```text\n{text}\n```"
    if words and "\n  COMMAND\n" in text:
        inside = text.partition("\n  COMMAND\n")[2].partition("\n\n")[0]
        for name in SUBCOMMAND.findall(inside):
            yield f"### treadle {words[0]} {name}"
            yield f"```text\n{print_help([*words, name, '--help'])}\n```"


def print_help(arguments: list[str]) -> str:
    from treadle.apps.cli.main import run

    printed = io.StringIO()
    with patch.dict(os.environ, COLUMNS=WIDTH), redirect_stdout(printed):
        try:
            run(arguments)
        except SystemExit:
            pass
    return printed.getvalue().strip()
