"""Tests that the documents link to, as `tests/path.py#test_name`: on the site each link leads to
the source of that test. A page below repository/proofs/ has the linked tests of a file.

Used by hooks.py and the tests.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable

from scripts.docs_site.repository_links import NOT_SEARCHED, PROOFS, ROOT

LINKED_TEST = re.compile(r"\]\((?:\.\./)*(tests/[\w/]+\.py)#(test_\w+)\)")


def list_linked_tests(text: str) -> list[tuple[str, str]]:
    """The file and the name of each test that a text links to."""
    return sorted({(path, name) for path, name in LINKED_TEST.findall(text)})


def write_proofs(texts: Iterable[str]) -> dict[str, str]:
    """The pages with the tests that these texts link to."""
    named: defaultdict[str, set[str]] = defaultdict(set)
    for text in texts:
        for path, name in list_linked_tests(text):
            named[path].add(name)
    return {f"{PROOFS}/{path}.md": show_tests(path, names) for path, names in named.items()}


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
