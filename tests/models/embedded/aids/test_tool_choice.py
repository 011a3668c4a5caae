from __future__ import annotations

import json

import pytest

from tests.models.embedded.tool_specs import ADD, CODING
from treadle.core.transcript import (
    AssistantItem,
    Text,
    ToolCall,
    ToolResultItem,
    Transcript,
    to_user_item,
)
from treadle.models.embedded.aids import answer_template, tool_choice
from treadle.models.embedded.small_toolset import select_small_tools

TOOLS = select_small_tools(CODING)


@pytest.mark.parametrize(
    "text",
    [
        "List the files here and say what this folder is",
        "What is this folder?",
        "What kind of project is this?",
        "What does this project do?",
        "Show me the files",
        "Tell me what is in this directory",
        "Explain this repo to me",
        "Give me an overview of the codebase",
    ],
)
def test_a_question_about_the_folder_leads_to_a_listing(text: str) -> None:
    chosen = tool_choice.choose_tools(Transcript([to_user_item(text)]), TOOLS)
    assert [offer.short_name for offer in chosen.tools] == ["ls"]
    assert chosen.forced_call is not None
    assert chosen.forced_call[1] == {"path": "."}


@pytest.mark.parametrize(
    ("text", "word", "field", "values"),
    [
        ("What does lib/core.py do?", "read", "path", ("lib/core.py",)),
        ("What is in the folder examples?", "ls", "path", ("examples",)),
        ("Run make all", "bash", "command", ("make all",)),
        ("Run `make all`, it fails.", "bash", "command", ("make all",)),
        ("Delete the file old.txt", "bash", "command", ("rm old.txt",)),
        ("In a.py replace one by two", "edit", "new", ("two",)),
        ("Create n.txt with the text good day", "write", "content", ("good day\n",)),
    ],
)
def test_names_are_taken_from_the_request_and_not_spelled(
    text: str, word: str, field: str, values: tuple[str, ...]
) -> None:
    chosen = tool_choice.choose_tools(Transcript([to_user_item(text)]), TOOLS)
    offer = next(offer for offer in chosen.tools if offer.short_name == word)
    choices = next(one.choices for one in offer.fields if one.short_name == field)
    assert set(values) <= set(choices)


def test_a_command_is_never_invented() -> None:
    chosen = tool_choice.choose_tools(Transcript([to_user_item("Delete the folder dist")]), TOOLS)
    (bash,) = chosen.tools
    assert bash.fields[0].choices[0] == "rm -r dist"


@pytest.mark.parametrize("text", ["Hi there", "What is the boiling point of water?", "Thanks"])
def test_small_talk_and_knowledge_are_answered(text: str) -> None:
    assert not tool_choice.choose_tools(Transcript([to_user_item(text)]), TOOLS).tools


def test_a_tool_that_no_example_knows_is_offered_when_the_request_speaks_of_it() -> None:
    offers = select_small_tools([ADD])
    chosen = tool_choice.choose_tools(Transcript([to_user_item("Add 2 and 3")]), offers)
    assert [offer.short_name for offer in chosen.tools] == ["add"]
    assert not tool_choice.choose_tools(Transcript([to_user_item("Hi there")]), offers).tools


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What is written in setup.cfg?", {"read", "bash", "edit", "write"}),
        ("Where is config.json used?", {"read", "bash", "edit", "write", "grep"}),
    ],
)
def test_a_file_that_was_not_looked_at_is_neither_talked_about_nor_searched_for(
    text: str, words: set[str]
) -> None:
    asked = Transcript([to_user_item(text)])
    chosen = tool_choice.narrow_tools(asked, TOOLS)
    assert {offer.short_name for offer in chosen.tools} == words
    assert not chosen.may_answer
    seen = after(text, ("Read", '{"file_path":"setup.cfg"}', "x = 1"))
    assert tool_choice.narrow_tools(seen, TOOLS) == tool_choice.ToolChoice(TOOLS)


def after(text: str, *rounds: tuple[str, str, str]) -> Transcript:
    transcript = Transcript([to_user_item(text)])
    for number, (name, raw, text) in enumerate(rounds):
        call = ToolCall(f"c{number}", name, raw)
        transcript = transcript.append(AssistantItem((call,), stop="tool_use"))
        transcript = transcript.append(ToolResultItem(call.id, name, (Text(text),)))
    return transcript


def test_a_readme_is_read_before_the_folder_is_described() -> None:
    listing = ("Bash", '{"command":"ls -a ."}', ".\n..\nREADME.md\napp.py\n")
    seen = after("What is this folder?", listing)
    chosen = tool_choice.choose_tools(seen, TOOLS)
    assert chosen.forced_call is not None
    assert (chosen.forced_call[0].real_name, chosen.forced_call[1]) == (
        "Read",
        {"path": "README.md"},
    )
    only_files = after("How many files are there?", listing)
    assert tool_choice.choose_tools(only_files, TOOLS).forced_call is None


def test_the_answer_begins_with_what_was_found() -> None:
    seen = after(
        "What is this folder?",
        ("Bash", '{"command":"ls -a ."}', ".\n..\nREADME.md\napp.py\n\nexit code 0"),
        ("Read", '{"file_path":"README.md"}', "# Tidemark\n\nPredicts tides. Well.\n"),
    )
    now = tool_choice.read_current_turn(seen)
    start = answer_template.build_answer_template(now, TOOLS)
    assert start.start == (
        "The files here are README.md, app.py. README.md says: “Tidemark: Predicts tides.” "
        "This folder is"
    )
    assert start.continues


def test_an_error_starts_the_answer_and_ends_it() -> None:
    call = ToolCall("c", "Read", '{"file_path":"gone.md"}')
    result = ToolResultItem("c", "Read", (Text("no such file: gone.md"),), is_error=True)
    turn = tool_choice.CurrentTurn("Read gone.md", (call,), (result,))
    start = answer_template.build_answer_template(turn, TOOLS)
    assert start.start == "That did not work: no such file: gone.md"
    assert not start.continues


def test_the_same_look_twice_is_going_in_circles_unless_something_changed() -> None:
    look = ("Read", '{"file_path":"a"}', "x")
    change = ("Edit", '{"file_path":"a","old_string":"x","new_string":"y"}', "ok")
    assert [call.name for call in tool_choice.list_calls_since_change(after("Fix a", look))] == [
        "Read"
    ]
    assert tool_choice.list_calls_since_change(after("Fix a", look, change)) == []


@pytest.mark.parametrize(
    ("said", "calls", "expected"),
    [
        ("Fix the bug in calc.py", (), True),
        ("Fix the bug in calc.py", ("read",), True),
        ("Fix the bug in calc.py", ("read", "write"), False),
        ("Write a script count.py", ("write",), False),
        ("Which tests are there?", ("glob",), False),
        ("List the files", (), False),
    ],
)
def test_code_that_was_asked_for_and_not_written_is_noticed(
    said: str, calls: tuple[str, ...], expected: bool
):
    made = tuple(ToolCall(f"c{at}", name, "{}") for at, name in enumerate(calls))
    results = tuple(ToolResultItem(call.id, call.name, (Text("ok"),)) for call in made)
    assert tool_choice.lacks_change(tool_choice.CurrentTurn(said, made, results)) is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [("cat a.py", False), ("grep x a.py", False), ("rm a.py", True), ("cat a > b", True)],
)
def test_a_command_that_only_shows_something_is_no_change(command: str, expected: bool) -> None:
    seen = after("Fix a.py", ("Bash", json.dumps({"command": command}), "ok"))
    assert tool_choice.has_changed(tool_choice.read_current_turn(seen)) is expected


def test_a_question_about_a_thing_of_the_project_is_searched_for_first() -> None:
    chosen = tool_choice.narrow_tools(
        Transcript([to_user_item("Which port does the server listen on?")]), TOOLS
    )
    assert chosen.forced_call is not None
    assert chosen.forced_call[1] == {"pattern": "(?i)port|server|listen"}
    world = Transcript([to_user_item("What is the boiling point of water?")])
    assert tool_choice.narrow_tools(world, TOOLS).forced_call is None
