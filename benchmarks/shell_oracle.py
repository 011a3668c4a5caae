"""Does the reader of command lines see all that bash does? Generated lines, run and compared.

Each line is read by `treadle.lib.shell` and run by bash under strace, inside the sandbox where
there is one, in a folder of its own where every program is a stand-in that does nothing. A program
that was executed, or a file that was opened for writing, though the reader listed no such thing and
had no doubt, is a failure.

    python benchmarks/shell_oracle.py 100000 --seed 7
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.shell_lines import Lines
from benchmarks.shell_sandbox import Ground, Seen
from treadle.lib.shell.ast import SimpleCommand, Word
from treadle.lib.shell.syntax.parser import parse_command

BATCH = 50


def compare(lines: Sequence[str], ground: Ground) -> tuple[int, list[str]]:
    """How many of the lines were understood, and where bash did more than was listed."""
    understood = [line for line in lines if not _in_doubt(line)]
    failures: list[str] = []
    for first in range(0, len(understood), BATCH):
        batch = understood[first : first + BATCH]
        for number, (line, seen) in enumerate(zip(batch, ground.run(batch), strict=True)):
            failures += (
                f"{said}\n  in {line!r}" for said in _more(line, seen, ground.place(number))
            )
    return len(understood), failures


def _in_doubt(line: str) -> bool:
    """Whether the judge would ask, whatever the rules say."""
    facts = parse_command(line)
    parts = list(_everything(facts.commands))
    if facts.doubts or any(p.doubts or not _named(p) for p in parts):
        return True
    return any(not _static(target) for target in _targets(parts))


def _named(part: SimpleCommand) -> bool:
    name = part.argv[0] if part.argv else None
    return name is None or (
        name.text is not None and (not name.is_glob or name.text in ("[", "[["))
    )


def _static(target: Word | None) -> bool:
    if target is None or target.text is None or target.is_glob:
        return False
    return not target.has_tilde or target.text[1:2] in ("", "/")  # another user's home is not known


def _targets(parts: Sequence[SimpleCommand]) -> list[Word | None]:
    return [r.target for p in parts for r in p.redirects if r.effect in ("write", "both")]


def _more(line: str, seen: Seen, work: str) -> Iterator[str]:
    """What was done that the reader did not list."""
    parts = list(_everything(parse_command(line).commands))
    for argv in seen.ran:
        if not any(_same(argv, p.argv) for p in parts):
            yield f"ran {argv}"
    listed = {_path(target, work) for target in _targets(parts) if target is not None}
    if seen.written - listed:
        yield f"wrote {seen.written - listed}"


def _path(word: Word, work: str) -> str:
    text = word.text or ""
    whole = "/nowhere" + text[1:] if word.has_tilde else os.path.join(work, text)  # noqa: PTH118 (text)
    return os.path.normpath(whole)


def _everything(parts: Sequence[SimpleCommand]) -> Iterator[SimpleCommand]:
    for part in parts:
        yield part
        yield from _everything(part.inner)


def _same(argv: Sequence[str], words: Sequence[Word]) -> bool:
    """Whether a listed command could have become this program with these arguments."""
    if not words or not argv:
        return not words and not argv
    given = {argv[0], argv[0].rpartition("/")[2]}
    return bool(given & _meant(words[0])) and _become(argv[1:], words[1:])


def _become(arguments: Sequence[str], words: Sequence[Word]) -> bool:
    if not words:
        return not arguments
    word = words[0]
    if word.text is None or word.is_glob:  # any number of words
        return any(_become(arguments[n:], words[1:]) for n in range(len(arguments) + 1))
    return bool(arguments) and arguments[0] in _meant(word) and _become(arguments[1:], words[1:])


def _meant(word: Word) -> set[str]:
    text = word.text or ""
    return {text, "/nowhere" + text[1:]} if word.has_tilde else {text}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    lines, ground = Lines(options.seed), Ground()
    understood = failures = 0
    began = time.monotonic()
    try:
        for first in range(0, options.count, 500):
            clear, found = compare(lines.take(min(500, options.count - first)), ground)
            understood += clear
            failures += len(found)
            for failure in found:
                print(failure, flush=True)
        where = "in the sandbox" if ground.sandbox else "without a sandbox"
    finally:
        ground.close()
    rate = options.count / (time.monotonic() - began)
    print(
        f"seed {options.seed}: {options.count} lines, {understood} understood, "
        f"{failures} failures, {rate:.0f} lines/s {where}"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
