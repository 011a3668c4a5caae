"""Writes docs/reference/ from the program's own tables. With --check it writes nothing, and names
the pages that are not as it would write them.

Each page has a module in scripts/reference_pages. Run it after a change of a setting, an option, an
error, an event, a slash command or a public name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"


def main(arguments: Sequence[str]) -> int:
    sys.path.insert(0, str(ROOT))  # the pages are scripts.reference_pages
    pages = write_reference()
    differing = find_differences(pages)
    if arguments == ["--check"]:
        for name in differing:
            print(f"docs/reference/{name} differs: run scripts/reference.py")
        return 1 if differing else 0
    for name in differing:
        page = FOLDER / name
        if name in pages:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(pages[name])
        else:
            page.unlink()
        print(f"docs/reference/{name}")
    return 0


@cache
def write_reference() -> dict[str, str]:
    """Every page below docs/reference: its name to its text."""
    from scripts.reference_pages import (
        api,
        command_line,
        environment,
        errors,
        events,
        exit_codes,
        files,
        hook_events,
        rules,
        settings,
        slash_commands,
    )

    pages = {
        "command-line.md": command_line.write_page(),
        "settings.md": settings.write_page(),
        "environment.md": environment.write_page(),
        "files.md": files.write_page(),
        "exit-codes.md": exit_codes.write_page(),
        "errors.md": errors.write_page(),
        "events.md": events.write_page(),
        "rules.md": rules.write_page(),
        "hook-events.md": hook_events.write_page(),
        "slash-commands.md": slash_commands.write_page(),
        **api.write_pages(),
    }
    return {"README.md": write_index(pages), **pages}


def write_index(pages: dict[str, str]) -> str:
    """The list of the pages, by their titles."""
    from scripts.reference_pages.markdown import make_list, make_page

    titles = {name: text.partition("\n# ")[2].partition("\n")[0] for name, text in pages.items()}
    modules = [name for name in pages if "/" in name]
    return make_page(
        "Reference",
        "Written from the program's own tables: what is not here does not exist.",
        make_list(f"[{titles[name]}]({name})" for name in pages if name not in modules),
        "## API",
        make_list(f"[{titles[name]}]({name})" for name in modules),
    )


def find_differences(pages: dict[str, str], folder: Path = FOLDER) -> list[str]:
    """The pages that are missing, are not as they would be written, or are none of these."""
    found = {page.relative_to(folder).as_posix(): page for page in folder.rglob("*.md")}
    return sorted(
        name
        for name in {*pages, *found}
        if name not in found or pages.get(name) != found[name].read_text()
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
