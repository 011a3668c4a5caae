"""The frontmatter of files: read as YAML reads it, and what YAML refuses as it is meant."""

from __future__ import annotations

import pytest
import yaml  # type: ignore[import-untyped]

from treadle.lib.text.frontmatter import FrontmatterError, parse_frontmatter, parse_list

DOCUMENTS = [
    "name: reviewer\ndescription: Reads a change.",
    "tools: [read, grep, glob]",
    "tools: ['a, b', \"c\", d]",
    "tools:\n  - read\n  - 'grep'\n  - \"glob\"",
    "tools:\n- read\n- grep # the fast one",
    "tools: [\n  read,\n  grep,\n]",
    "description: >\n  One line\n  and more.\n\n  Another paragraph.",
    "description: |\n  First\n    indented\n  last",
    "description: |-\n  First\n  last",
    "description: >-\n  folded\n  text",
    'description: "a \\"quoted\\" word\\nand a line"',
    "description: 'it''s here'",
    "name: a # a comment\nmodel: opus",
    "# a comment\nname: a",
    "description: C# and F#",
    "description: one\n  two\n  three",
    "url: https://example.org/a#b",
    "name: ''\nother: x",
    "\"name\": reviewer\n'argument-hint': a file",
    r'description: "\x41 \u00e9 \U0001f600 \e[1m \0 \a\b\v\_\N\L\P\/ and \t\"this\" \\"',
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_it_is_read_as_yaml_reads_it(document: str):
    head, body = parse_frontmatter(f"---\n{document}\n---\nBody")
    assert body == "Body"
    expected = yaml.safe_load(document)
    clean = {key: one.strip("\n") if isinstance(one, str) else one for key, one in expected.items()}
    assert head == clean


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("description: Use when: the user asks", {"description": "Use when: the user asks"}),
        ("argument-hint: [file] [line]", {"argument-hint": "[file] [line]"}),
        ("description: @file and `code`", {"description": "@file and `code`"}),
        ("tools: [Bash(git log:*, x), Read]", {"tools": ["Bash(git log:*, x)", "Read"]}),
        ("a: Use\n\n<eg>\nx: y\nz\n</eg>\n\nb: c", {"a": "Use <eg> x: y z </eg>", "b": "c"}),
    ],
)
def test_what_is_no_yaml_is_read_as_it_is_meant(document: str, expected: object):
    assert parse_frontmatter(f"---\n{document}\n---\n")[0] == expected


def test_a_list_with_commas_keeps_what_is_in_parentheses_and_quotes():
    assert parse_list('Bash(git add:*, b), Read, "a, b"') == [
        "Bash(git add:*, b)",
        "Read",
        '"a, b"',
    ]


def test_an_unknown_escape_leaves_the_others_decoded():
    head, _ = parse_frontmatter(
        '---\na: "C:\\work \\x4g \\U99999999 \\ud83d\\ude00 \\ud83d \\x41"\n---\n'
    )
    assert head["a"] == "C:\\work \\x4g \\U99999999 \U0001f600 \ufffd A"


def test_a_line_of_three_dots_closes_the_frontmatter_as_well():
    assert parse_frontmatter("---\nname: a\n...\nBody\n---\n") == ({"name": "a"}, "Body\n---\n")


def test_a_line_that_is_none_is_named():
    with pytest.raises(FrontmatterError, match="line 3: 'what' is not `key: value`"):
        parse_frontmatter("---\nname: a\nwhat\n---\n")
