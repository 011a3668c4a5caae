"""The code of docs/writing-tools.md runs, and its table lists every option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_type_hints

from treadle.tools.option_types import ToolOptions
from treadle.tools.tool_options import EXPECTED_OPTIONS

PAGE = (Path(__file__).parents[2] / "docs/writing-tools.md").read_text()


def test_the_code_of_the_page_runs(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "docs/writing-tools.md", "exec"), names)
    assert len(blocks) == 6


def test_the_page_lists_every_option():
    table = PAGE[PAGE.index("| option |") : PAGE.index("An option that does not exist")]
    listed = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    names = [name for cell in listed for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(names) == sorted(get_type_hints(ToolOptions)) == sorted(EXPECTED_OPTIONS)
