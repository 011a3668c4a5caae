"""The navigation of the site: `nav` of mkdocs.yml, whose entries may be patterns.

An entry such as `coming-from-*.md` stands for all pages that match it and are in no other entry, in
the order of their names. So a new page needs no change there. Used by hooks.py and the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any


def expand_navigation(entries: list[Any], pages: list[str]) -> list[Any]:
    """The navigation with its patterns replaced by pages; a section without pages is left out."""
    named = {entry for entry in walk(entries) if "*" not in entry}
    left = [page for page in pages if page not in named]
    return list(_expand(entries, left))


def walk(entries: list[Any]) -> Iterator[str]:
    """Every page or pattern of a navigation, in order."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from walk(value) if isinstance(value, list) else [value]


def _expand(entries: list[Any], left: list[str]) -> Iterator[Any]:
    for entry in entries:
        match entry:
            case str() if "*" in entry:
                found = [page for page in left if fnmatch(page, entry)]
                found.sort(key=lambda page: page.removesuffix(".md"))
                left[:] = [page for page in left if page not in found]
                yield from found
            case dict():
                ((title, value),) = entry.items()
                inside = list(_expand(value, left)) if isinstance(value, list) else value
                if inside:
                    yield {title: inside}
            case _:
                yield entry
