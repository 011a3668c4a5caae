"""Where a file of the repository is on the documentation site, and links between such files.

Pages of docs/ keep their names, README.md is the first page. Any other file that a page links to
has a page of its own below repository/: a Markdown file as it is, a program as one block of code,
a folder as a list. So the site is complete without a code host. Used by hooks.py and the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath, relpath

ROOT = Path(__file__).resolve().parents[2]
COPIES = "repository"
PROOFS = f"{COPIES}/proofs"
MAX_COLORED_LINES = 400
# The head of a page that the search leaves out: code would hide what explains it.
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n"
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "sh"}
# Code first: what looks like a link inside of it is none.
PART = re.compile(
    r"^```.*?^```$|^(?: {4}|\t)[^\n]*$|(?P<ticks>`+)[^`].*?(?P=ticks)"
    r"|(?P<begin>\]\(|<img src=\")(?P<link>[^)\"\s]+)(?P<end>[)\"])",
    re.DOTALL | re.MULTILINE,
)
EXTERNAL = re.compile(r"[a-z][a-z+.-]*:|#")


def make_slug(heading: str, separator: str = "-") -> str:
    """The anchor of a heading, as code hosts make it: mkdocs calls this too."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def find_links(text: str) -> Iterator[str]:
    """The targets of all links and images of a Markdown text that are not URLs or own anchors."""
    for part in PART.finditer(text):
        if part["link"] and not EXTERNAL.match(part["link"]):
            yield part["link"]


def resolve(link: str, page: str) -> str:
    """The path of a linked file from the root of the repository, without its anchor."""
    return normpath(f"{Path(page).parent.as_posix()}/{link.partition('#')[0]}")


def site_path(path: str) -> str:
    """The file of the site that shows a file of the repository."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"{COPIES}/{path}/folder.md"
    return f"{COPIES}/{path}" if path.endswith(".md") else f"{COPIES}/{path}.md"


def repository_path(page: str) -> str:
    """The file of the repository that a page of the site shows: the reverse of `site_path`."""
    if page == "index.md":
        return "README.md"
    if not page.startswith(f"{COPIES}/"):
        return f"docs/{page}"
    path = page.removeprefix(f"{COPIES}/")
    return path if page.endswith("/folder.md") or (ROOT / path).is_file() else path[: -len(".md")]


def is_test(link: str) -> bool:
    """Whether a link leads to one test of a file: its page is made by proofs.py."""
    return link.partition("#")[2].startswith("test_")


def rewrite_links(text: str, page: str) -> str:
    """The text of a page with links that hold on the site; `page` is its file of the site."""
    source = repository_path(page)

    def rewrite(part: re.Match[str]) -> str:
        link = part["link"]
        if not link or EXTERNAL.match(link):
            return part[0]
        path = resolve(link, source)
        shown = f"{PROOFS}/{path}.md" if is_test(link) else site_path(path)
        target = relpath(shown, Path(page).parent.as_posix())
        anchor = link.partition("#")[2]
        return f"{part['begin']}{target}{'#' if anchor else ''}{anchor}{part['end']}"

    return PART.sub(rewrite, text)


def list_copies(pages: list[str]) -> dict[str, str]:
    """The pages below repository/ that these files of the repository need: name to content."""
    copies: dict[str, str] = {}
    waiting = [(page, (ROOT / page).read_text()) for page in pages]
    while waiting:
        page, text = waiting.pop()
        for path in {resolve(link, page) for link in find_links(text) if not is_test(link)}:
            name = site_path(path)
            if name.startswith(f"{COPIES}/") and name not in copies:
                copies[name] = show_file(path)
                source = repository_path(name)
                if source.endswith(".md"):
                    waiting.append((source, copies[name]))
    return copies


def show_file(path: str) -> str:
    """The Markdown text of a page for a file or folder; a link to nothing is an error."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(one.name for one in file.iterdir() if one.is_file())
        return f"# {path}\n\n" + "\n".join(f"- [{name}]({name})" for name in names)
    if path.endswith(".md"):
        return file.read_text()
    text = file.read_text()
    # Colours of a long file take longer than the rest of the site.
    is_long = text.count("\n") > MAX_COLORED_LINES
    language = "text" if is_long else LANGUAGES.get(file.suffix, "text")
    return f"{NOT_SEARCHED}# {path}\n\n````{language}\n{text}````\n"
