"""Draws sentences of the documentation at random, to be tried one by one.

    python scripts/claims.py [--seed 7] [--count 60]

A sentence of a paragraph, a list or a table that says something about the program; with the same
seed and the same pages the same ones. Not those of docs/reference, which the program wrote, nor of
benchmarks and decisions, whose figures are measured elsewhere.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = ("benchmarks.md", "what-the-model-sees.md", "loop-elsewhere.md")
CODE = re.compile(
    r"^```.*?^```$|^<!--.*?-->$|^(?: {4}|\t)[^\n]*$|^#[^\n]*$", re.DOTALL | re.MULTILINE
)
SENTENCE_END = re.compile(r"(?<=[.])\s+(?=[A-Z`*\[])")
TABLE_HEAD = re.compile(r"^\|[^\n]*\n\|-[^\n]*$", re.MULTILINE)
TESTS = re.compile(r"Tests?: .*", re.DOTALL)
MIN_WORDS = 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=60)
    options = parser.parse_args()
    claims = [(page.name, claim) for page in list_pages() for claim in list_claims(page)]
    for number, (name, claim) in enumerate(
        random.Random(options.seed).sample(claims, options.count), 1
    ):
        print(f"{number:3} {name}: {claim}")
    return 0


def list_pages() -> list[Path]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in pages if page.name not in LEFT_OUT]


def list_claims(page: Path) -> Iterator[str]:
    text = CODE.sub("\n", TABLE_HEAD.sub("\n", page.read_text()))
    for block in re.split(r"\n\s*\n|\n(?=[-|] ?|\d+\. )", text):
        for sentence in SENTENCE_END.split(" ".join(TESTS.sub("", block).split())):
            if len(sentence.split()) >= MIN_WORDS and not sentence.startswith("!["):
                yield sentence


if __name__ == "__main__":
    sys.exit(main())
