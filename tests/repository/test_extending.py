"""docs/extending.md: its code is that of the examples, its tables are complete."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import treadle.testing
from treadle.contracts import Entry, decode_entry, encode_entry

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/extending.md").read_text()
EXAMPLES = sorted((ROOT / "examples/extending").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_page_shows_the_code_of_an_example(example: Path):
    shown = re.findall(rf"<!-- from: {example.name} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(shown) == 1
    assert shown[0] in example.read_text()
    assert f"](../examples/extending/{example.name})" in PAGE


def test_every_suite_is_in_the_table_with_its_arguments():
    for name in treadle.testing.__all__:
        if not name.startswith("check_"):
            continue
        (call,) = set(re.findall(rf"`{name}\((.*?)\)`", PAGE)) - {
            "Echo, ConformanceRequests(call=None)"
        }
        described = [argument.split("=")[0] for argument in re.split(r", ", call) if argument]
        parameters = inspect.signature(getattr(treadle.testing, name)).parameters
        assert described == list(parameters), name


def test_the_table_of_entries_has_every_kind_with_its_fields():
    section = PAGE[PAGE.index("### The encoding of entries") : PAGE.index("## Workspace")]
    section = section[section.index("|---|") :]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) ?\| ", section, re.MULTILINE))
    known = {
        str(kind.__struct_config__.tag): [
            field.encode_name for field in msgspec.structs.fields(kind)
        ]
        for kind in get_args(Entry)
    }
    assert {kind: re.findall(r"`(\w+)`", fields) for kind, fields in rows.items()} == known


def test_the_lines_of_the_page_are_entries():
    lines = re.findall(r'^    (\{"kind".*\})$', PAGE, re.MULTILINE)
    assert len(lines) == 6
    for line in lines:
        entry = decode_entry(line.encode())
        assert decode_entry(encode_entry(entry)) == entry


def test_an_entry_of_a_newer_version_is_refused_and_a_new_field_is_ignored():
    with pytest.raises(msgspec.DecodeError, match="newer"):
        decode_entry(b'{"kind":"newer"}')
    assert decode_entry(b'{"kind":"turn","turn_id":"turn-1","new":1}')


def test_the_block_about_checks_runs(tmp_path: Path):
    blocks = re.findall(r"(?<!-->\n)```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 1
    names: dict[str, Any] = {}
    exec(blocks[0], names)
    names["test_my_store"](tmp_path)
