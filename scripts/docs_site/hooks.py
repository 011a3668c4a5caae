"""What mkdocs calls while it builds the site: see `hooks` in mkdocs.yml.

Adds the pages that are not in docs/ (the README, files that pages link to), expands the navigation,
and changes what a code host and mkdocs read differently in the same Markdown text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scripts.docs_site import proofs
from scripts.docs_site.navigation import expand_navigation
from scripts.docs_site.repository_links import (
    PROOFS,
    ROOT,
    list_copies,
    repository_path,
    rewrite_links,
)

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

FROM_ROOT = ("index.md", "repository/CONTRIBUTING.md", "repository/CHANGELOG.md")
ITEM = re.compile(r"([-*]|\d+\.) ")
FIRST_ITEM = re.compile(r"([-*]|1\.) ")  # what may begin a list right behind a paragraph
CODE_SPAN = re.compile(r"`[^`\n]+`")
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
NAME_IN_TABLE = re.compile(r"(?<=<code>)[^<]{8,}(?=</code>)")
PART_END = re.compile(r"(?<=\w)[-_/.=:,(\[]+(?=\w)|(?<=[a-z])(?=[A-Z])")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = expand_navigation(config.nav or [], [*list_pages(), *FROM_ROOT])
    return config


def list_pages() -> list[str]:
    """The pages of docs/, as mkdocs names them."""
    docs = ROOT / "docs"
    return sorted(page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    sources = ["README.md", *(f"docs/{page}" for page in list_pages())]
    texts = {name: (ROOT / name).read_text() for name in sources}
    pages = {"index.md": texts["README.md"], **list_copies(sources)}
    for name, text in {**pages, **proofs.write_proofs(texts.values())}.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    name = page.file.src_uri
    page.meta["search"] = {"boost": choose_search_weight(name)}
    if name.startswith(f"{PROOFS}/") or not repository_path(name).endswith(
        ".md"
    ):  # a program is shown as it is
        return markdown
    return adapt_markdown(rewrite_links(markdown, name))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Long names in tables may be broken behind their parts; the search index is made before."""
    return TABLE.sub(lambda table: NAME_IN_TABLE.sub(mark_parts, table[0]), output)


def mark_parts(name: re.Match[str]) -> str:
    return PART_END.sub(r"\g<0><wbr>", name[0])


def choose_search_weight(name: str) -> float:
    """The tables of the reference come first in the search, then the guides, then the API; last
    comes what names everything: the changelog, whole prompts, the copies of programs and tests."""
    if name == "cli.md":  # it explains every option
        return 4
    if name.startswith("repository/") or name == "what-the-model-sees.md":
        return 0.1
    if name.startswith(("reference/api/", "decisions/")):
        return 0.5
    return 2 if name.startswith("reference/") else 1


def adapt_markdown(text: str) -> str:
    """The same text for Python-Markdown, which differs from CommonMark in three points."""
    adapted: list[str] = []
    in_code = False
    for line in text.splitlines():
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code:
            if line.startswith("<!--") and line.endswith("-->"):  # it would end the block below it
                continue
            if line.startswith("|"):  # a pipe in code needs no backslash
                line = CODE_SPAN.sub(lambda span: span[0].replace(r"\|", "|"), line)
            if FIRST_ITEM.match(line) and adapted and is_text(adapted[-1]):
                adapted.append("")  # a list needs a blank line before it
        adapted.append(line)
    return "\n".join(adapted) + "\n"


def is_text(line: str) -> bool:
    """Whether a line belongs to a paragraph, not to a list."""
    return (
        bool(line.strip()) and not line.startswith((" ", "#", "|", "```")) and not ITEM.match(line)
    )
