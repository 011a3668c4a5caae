"""Builds the documentation site into site/; any warning is an error. Run by `./check docs`.

The settings are in mkdocs.yml, the pages that are not in docs/ are made by scripts/docs_site.
"""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Tags that load something; a link to another site loads nothing.
LOADED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=\"(https?:[^\"]+)")


def main() -> int:
    sys.path.insert(0, str(ROOT))  # the hooks are scripts.docs_site
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True)
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    except Abort as problem:
        print(f"the documentation has faults: {problem}")
        return 1
    finally:
        config.plugins.on_shutdown()
    if found := find_foreign_files(Path(config.site_dir)):
        print("the documentation loads files from elsewhere: " + ", ".join(sorted(found)))
        return 1
    print(f"built {ROOT / 'site' / 'index.html'}")
    return 0


def find_foreign_files(site: Path) -> set[str]:
    """Addresses of scripts, images and styles that the pages would fetch from another host."""
    pages = (page.read_text() for page in site.rglob("*.html"))
    return {address for page in pages for address in LOADED.findall(page)}


if __name__ == "__main__":
    sys.exit(main())
