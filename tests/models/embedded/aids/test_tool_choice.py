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
from treadle.models.embedded.few_shot import is_small_talk
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
    assert bash.fields[0].choices == ("rm -r dist",)


@pytest.mark.parametrize(
    "text",
    [
        "Remove the unused import from a.py",
        "Delete the last line of a.py",
        "Remove a.py and b.py from the list",
        "Delete everything but a.py",
    ],
)
def test_a_file_is_not_deleted_because_something_in_it_shall_be(text: str) -> None:
    chosen = tool_choice.choose_tools(Transcript([to_user_item(text)]), TOOLS)
    choices = [field.choices for tool in chosen.tools for field in tool.fields]
    assert not [one for values in choices for one in values if one.startswith("rm ")]


@pytest.mark.parametrize("text", ["Hi there", "What is the boiling point of water?", "Thanks"])
def test_small_talk_and_knowledge_need_no_call(text: str) -> None:
    assert not tool_choice.choose_tools(Transcript([to_user_item(text)]), TOOLS).tools


@pytest.mark.parametrize(
    "text",
    [
        "Write quicksort.py",
        "Write a script count.py that prints the numbers from 1 to 3",
        "Replace the loop in main.py",
        "Review my code",
        "Make it faster",
        "Was macht dieses Projekt schneller?",
        "Schreibe eine Funktion, die eine Liste umdreht",
    ],
)
def test_a_call_whose_values_the_request_does_not_give_is_not_offered(text: str) -> None:
    assert not tool_choice.choose_tools(Transcript([to_user_item(text)]), TOOLS).tools


@pytest.mark.parametrize(
    "text",
    ["What does add.py do?", "Show me add.py", "Was macht add.py?", "Que fait add.py ?"],
)
def test_a_question_about_a_file_reads_it(text: str) -> None:
    chosen = tool_choice.choose_tools(Transcript([to_user_item(text)]), TOOLS)
    assert chosen.forced_call is not None
    assert (chosen.forced_call[0].short_name, chosen.forced_call[1]) == ("read", {"path": "add.py"})
    assert tool_choice.is_understood(text, TOOLS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Review add.py", False),
        ("Why does add.py fail?", False),
        ("Repariere add.py", False),
        ("Where is `some very rare words` used?", True),
        ("Execute npm run build", True),
    ],
)
def test_a_request_of_unknown_words_is_not_understood_whatever_it_names(
    text: str, expected: bool
) -> None:
    assert tool_choice.is_understood(text, TOOLS) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", True),
        ("Hi there, what can you do?", True),
        ("Was kannst du?", True),
        ("Bonjour, que peux-tu faire ?", True),
        ("¿Qué puedes hacer?", True),
        ("hello, reverse a list", False),
        ("do it", False),
        ("Make it faster", False),
        ("42", False),
        ("", False),
    ],
)
def test_small_talk_has_no_word_beside_the_known_phrases(text: str, expected: bool) -> None:
    assert is_small_talk(text) is expected


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


def describe(seen: Transcript) -> str:
    return answer_template.describe_results(tool_choice.read_current_turn(seen), TOOLS)


def test_the_answer_is_what_was_found() -> None:
    seen = after(
        "What is this folder?",
        ("Bash", '{"command":"ls -a ."}', ".\n..\nREADME.md\napp.py\n\nexit code 0"),
        ("Read", '{"file_path":"README.md"}', "# Tidemark\n\nPredicts tides. Well.\n"),
    )
    assert describe(seen) == (
        "The files here are README.md, app.py. README.md says: “Tidemark: Predicts tides.”"
    )
    searched = after("Find TODO", ("Grep", '{"pattern":"TODO"}', "No matches."))
    assert describe(searched) == "I searched for `TODO`:\nNo matches."


def test_a_short_file_is_shown_whole_and_of_a_long_one_its_outline() -> None:
    short = ("Read", '{"file_path":"add.py"}', "1\tdef add(a, b):\n2\t    return a - b\n")
    assert describe(after("What does add.py do?", short)) == (
        "add.py:\n\n```\ndef add(a, b):\n    return a - b\n```"
    )
    code = "class Stack:\n    async def pop(self):\n" + "        x = 1\n" * 50
    long = ("Read", '{"file_path":"stack.py"}', code)
    assert describe(after("What does stack.py do?", long)) == (
        "stack.py, its outline (52 lines):\n\n```\nclass Stack:\n    async def pop(self):\n```"
    )
    marked = ("Read", '{"file_path":"a.md"}', "# Notes\n\n```sh\nls\n```\n")
    assert describe(after("Show me a.md", marked)).endswith("```\n````")
    empty = ("Read", '{"file_path":"a.py"}', "")
    assert describe(after("Show me a.py", empty)) == "a.py is empty."


def test_an_error_is_the_answer() -> None:
    call = ToolCall("c", "Read", '{"file_path":"gone.md"}')
    result = ToolResultItem("c", "Read", (Text("no such file: gone.md"),), is_error=True)
    turn = tool_choice.CurrentTurn("Read gone.md", (call,), (result,))
    answer = answer_template.describe_results(turn, TOOLS)
    assert answer == "That did not work: no such file: gone.md"


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
