"""Tests that the documents name, as `tests/path.py::test_name`: on the site each is a link to its
source. A page below repository/proofs/ has the named tests of a file. Used by hooks.py.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from posixpath import relpath

from scripts.docs_site.repository_links import COPIES, NOT_SEARCHED, ROOT

NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
FOLDER = f"{COPIES}/proofs"


def link_proofs(text: str, page: str) -> str:
    """The text with a link to the source of each test that it names."""

    def link(named: re.Match[str]) -> str:
        target = relpath(f"{FOLDER}/{named[1]}.md", Path(page).parent.as_posix())
        return f"[{named[0]}]({target}#{named[2]})"

    return NAMED_TEST.sub(link, text)


def write_proofs(texts: Iterable[str]) -> dict[str, str]:
    """The pages with the tests that these texts name."""
    named: defaultdict[str, set[str]] = defaultdict(set)
    for text in texts:
        for path, name in NAMED_TEST.findall(text):
            named[path].add(name)
    return {f"{FOLDER}/{path}.md": show_tests(path, names) for path, names in named.items()}


def show_tests(path: str, names: set[str]) -> str:
    source = (ROOT / path).read_text()
    lines = source.splitlines()
    parts = [f"{NOT_SEARCHED}# {path}", f"Run them: `./check {path}`"]
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in names:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            code = "\n".join(lines[first - 1 : node.end_lineno])
            parts += [f"## {node.name}", f"````python\n{code}\n````"]
    return "\n\n".join(parts) + "\n"
