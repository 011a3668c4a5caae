"""The documentation site: every page is in its navigation, every link leads to a heading.
`./check docs` builds it. The reference is in test_reference.py."""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from scripts.build_docs import find_foreign_files
from scripts.docs_site.hooks import FROM_ROOT, adapt_markdown, choose_search_weight, list_pages
from scripts.docs_site.navigation import expand_navigation, walk
from scripts.docs_site.proofs import write_proofs
from scripts.docs_site.repository_links import (
    ROOT,
    find_links,
    list_copies,
    make_slug,
    resolve,
    rewrite_links,
)
from tests.node_programs import find_node
from tests.repository.named_tests import exists

PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{page}" for page in list_pages())]


@cache
def read_navigation() -> list[Any]:
    from mkdocs.config import load_config  # not for every worker that collects tests

    return load_config(str(ROOT / "mkdocs.yml")).nav or []


def expand(pages: list[str]) -> list[str]:
    return list(walk(expand_navigation(read_navigation(), pages)))


def read_prose(path: str) -> str:
    return re.sub(r"^```.*?^```$", "", (ROOT / path).read_text(), flags=re.DOTALL | re.MULTILINE)


@cache
def headings(path: str) -> set[str]:
    return {make_slug(title) for title in re.findall(r"^#+ (.+)$", read_prose(path), re.MULTILINE)}


def test_every_page_of_docs_is_once_in_the_navigation():
    entries = expand([*list_pages(), *FROM_ROOT])
    assert sorted(entries) == sorted({*entries})
    assert set(list_pages()) <= set(entries)


def test_the_navigation_names_no_page_that_does_not_exist():
    known = {*list_pages(), *FROM_ROOT}
    assert [entry for entry in expand(sorted(known)) if entry not in known] == []


def test_a_page_that_comes_later_is_in_the_section_of_its_name():
    entries = expand(["coming-from-elsewhere.md", "benchmarks.md", "something-new.md"])
    assert entries.index("coming-from-elsewhere.md") < entries.index("terminal.md")
    assert (
        entries.index("promises.md") < entries.index("benchmarks.md") < entries.index("faults.md")
    )
    assert entries[-1] == "something-new.md"


def test_every_link_of_a_page_leads_to_a_file_and_its_heading():
    assert [(page, link) for page in PAGES for link in find_broken_links(page)] == []


def find_broken_links(page: str) -> Iterator[str]:
    text = (ROOT / page).read_text()
    for link in find_links(text):
        target, anchor = resolve(link, page), link.partition("#")[2]
        if not (ROOT / target).exists():
            yield link
        elif anchor.startswith("test_"):
            if not exists(f"{target}::{anchor}"):
                yield link
        elif anchor and anchor not in headings(target):
            yield link
    here = re.findall(r"\]\(#([^)\s]+)\)", text)
    yield from (anchor for anchor in here if anchor not in headings(page))


def test_every_column_of_a_table_has_a_title():
    assert [(page, head) for page in PAGES for head in find_untitled_tables(page)] == []


def find_untitled_tables(page: str) -> list[str]:
    heads: list[str] = re.findall(r"^(\|.*\|)\n\|[ :|-]+\|$", read_prose(page), re.MULTILINE)
    return [head for head in heads if not all(cell.strip() for cell in head[1:-1].split("|"))]


def test_the_first_block_of_a_page_fits_beside_its_columns():
    pages = [page for page in PAGES if page != "docs/what-the-model-sees.md"]  # it is real output
    wide = [(page, line) for page in pages for line in read_first_block(page) if len(line) > 90]
    assert wide == []


def read_first_block(page: str) -> list[str]:
    text = (ROOT / page).read_text()
    fenced = re.search(r"^(```|~~~)\w*\n(.*?)^\1$", text, re.MULTILINE | re.DOTALL)
    indented = re.search(r"(?<=\n\n)(?: {4}[^\n]*\n|\n)+", text)
    found = [one for one in (fenced, indented) if one]
    if not found:
        return []
    first = min(found, key=lambda one: one.start())
    return textwrap.dedent(first[first.lastindex or 0]).splitlines()


def test_a_program_that_a_page_links_to_is_shown_on_the_site():
    copies = list_copies(["docs/library.md"])
    assert "async def" in copies["repository/examples/chat_server.py.md"]
    text = rewrite_links("[server](../examples/chat_server.py) and `](code)`", "library.md")
    assert text == "[server](repository/examples/chat_server.py.md) and `](code)`"


def test_a_link_to_a_test_leads_to_its_source():
    name = "test_a_link_to_a_test_leads_to_its_source"
    text = f"([test](../../tests/repository/test_docs_site.py#{name}))."
    linked = rewrite_links(text, "decisions/page.md")
    assert f"](../repository/proofs/tests/repository/test_docs_site.py.md#{name}))." in linked
    [page] = write_proofs([text]).values()
    assert f"## {name}\n\n````python\ndef test_a_link" in page


def test_links_of_the_readme_hold_on_the_first_page():
    text = rewrite_links("[a](docs/cli.md#cost), [b](https://x.org), [c](LICENSE)", "index.md")
    assert text == "[a](cli.md#cost), [b](https://x.org), [c](repository/LICENSE.md)"
    image = '<img src="docs/images/mark.svg" alt="" width="48">'
    assert rewrite_links(image, "index.md") == image.replace("docs/", "")


def test_markdown_of_a_code_host_is_adapted_for_the_site():
    text = "Two:\n- a\n- b\n<!-- replies: [] -->\n```python\n- x\n```\n| `a \\| b` |\n"
    assert adapt_markdown(text) == "Two:\n\n- a\n- b\n```python\n- x\n```\n| `a | b` |\n"


def test_a_search_shows_the_tables_first_and_the_changelog_last():
    pages = [
        "reference/settings.md",
        "terminal.md",
        "reference/api/treadle.md",
        "repository/CHANGELOG.md",
    ]
    weights = [choose_search_weight(page) for page in pages]
    assert weights == sorted(weights, reverse=True)
    assert len({*weights}) == len(pages)


def test_a_search_for_an_option_is_one_for_the_words_of_its_name():
    script = (ROOT / "docs/assets/search-options.js").read_text()
    worker = "globalThis.Worker = class { postMessage(message) { console.log(message.data) } };"
    send = "for (const data of process.argv.slice(1)) new Worker().postMessage({ type: 2, data })"
    queries = ["--until", "-p", "use --max-turns", "a well-known word", "run_sync"]
    command = [find_node(), "-e", worker + script + send, "--", *queries]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == [
        "+until*",
        "+p*",
        "use +max* +turns*",
        "a well-known word",
        "run_sync",
    ]


def test_files_that_a_page_would_fetch_from_elsewhere_are_found(tmp_path: Path):
    page = '<a href="https://x.org">x</a><script defer src="https://cdn.example/a.js"></script>'
    (tmp_path / "index.html").write_text(page)
    assert find_foreign_files(tmp_path) == {"https://cdn.example/a.js"}
