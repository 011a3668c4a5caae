from __future__ import annotations

import pytest

from tests.models.embedded.specs import ADD, CODING
from treadle.core.transcript import AssistantItem, Text, ToolCall, ToolResultItem, Transcript, user
from treadle.models.embedded import answering, guide
from treadle.models.embedded.toolkit import toolkit

OFFERS = toolkit(CODING)


@pytest.mark.parametrize(
    "said",
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
def test_a_question_about_the_folder_leads_to_a_listing(said: str) -> None:
    chosen = guide.choice(Transcript([user(said)]), OFFERS)
    assert [offer.word for offer in chosen.offers] == ["ls"]
    assert chosen.due is not None
    assert chosen.due[1] == {"path": "."}


@pytest.mark.parametrize(
    ("said", "word", "field", "values"),
    [
        ("What does lib/core.py do?", "read", "path", ("lib/core.py",)),
        ("What is in the folder examples?", "ls", "path", ("examples",)),
        ("Run make all", "bash", "command", ("make all",)),
        ("Delete the file old.txt", "bash", "command", ("rm old.txt",)),
        ("In a.py replace one by two", "edit", "new", ("two",)),
        ("Create n.txt with the text good day", "write", "content", ("good day\n",)),
    ],
)
def test_names_are_taken_from_the_request_and_not_spelled(
    said: str, word: str, field: str, values: tuple[str, ...]
) -> None:
    chosen = guide.choice(Transcript([user(said)]), OFFERS)
    offer = next(offer for offer in chosen.offers if offer.word == word)
    choices = next(one.choices for one in offer.fields if one.short == field)
    assert set(values) <= set(choices)


def test_a_command_is_never_invented() -> None:
    chosen = guide.choice(Transcript([user("Delete the folder dist")]), OFFERS)
    (bash,) = chosen.offers
    assert bash.fields[0].choices[0] == "rm -r dist"


@pytest.mark.parametrize("said", ["Hi there", "What is the boiling point of water?", "Thanks"])
def test_small_talk_and_knowledge_are_answered(said: str) -> None:
    assert not guide.choice(Transcript([user(said)]), OFFERS).offers


def test_a_tool_that_no_example_knows_is_offered_when_the_request_speaks_of_it() -> None:
    offers = toolkit([ADD])
    chosen = guide.choice(Transcript([user("Add 2 and 3")]), offers)
    assert [offer.word for offer in chosen.offers] == ["add"]
    assert not guide.choice(Transcript([user("Hi there")]), offers).offers


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("What is written in setup.cfg?", {"read", "bash", "edit", "write"}),
        ("Where is config.json used?", {"read", "bash", "edit", "write", "grep"}),
    ],
)
def test_a_file_that_was_not_looked_at_is_neither_talked_about_nor_searched_for(
    said: str, words: set[str]
) -> None:
    asked = Transcript([user(said)])
    chosen = guide.narrowed(asked, OFFERS)
    assert {offer.word for offer in chosen.offers} == words
    assert not chosen.may_answer
    seen = after(said, ("Read", '{"file_path":"setup.cfg"}', "x = 1"))
    assert guide.narrowed(seen, OFFERS) == guide.Choice(OFFERS)


def after(said: str, *rounds: tuple[str, str, str]) -> Transcript:
    transcript = Transcript([user(said)])
    for number, (name, raw, text) in enumerate(rounds):
        call = ToolCall(f"c{number}", name, raw)
        transcript = transcript.append(AssistantItem((call,), stop="tool_use"))
        transcript = transcript.append(ToolResultItem(call.id, name, (Text(text),)))
    return transcript


def test_a_readme_is_read_before_the_folder_is_described() -> None:
    listing = ("Bash", '{"command":"ls -a ."}', ".\n..\nREADME.md\napp.py\n")
    seen = after("What is this folder?", listing)
    chosen = guide.choice(seen, OFFERS)
    assert chosen.due is not None
    assert (chosen.due[0].tool, chosen.due[1]) == ("Read", {"path": "README.md"})
    only_files = after("How many files are there?", listing)
    assert guide.choice(only_files, OFFERS).due is None


def test_the_answer_begins_with_what_was_found() -> None:
    seen = after(
        "What is this folder?",
        ("Bash", '{"command":"ls -a ."}', ".\n..\nREADME.md\napp.py\n\nexit code 0"),
        ("Read", '{"file_path":"README.md"}', "# Tidemark\n\nPredicts tides. Well.\n"),
    )
    now = guide.situation(seen)
    start = answering.opening(now.said, now.calls, now.results, OFFERS)
    assert start.begun == (
        "The files here are README.md, app.py. README.md says: “Tidemark: Predicts tides.” "
        "This folder is"
    )
    assert start.goes_on


def test_an_error_is_told_and_not_talked_over() -> None:
    call = ToolCall("c", "Read", '{"file_path":"gone.md"}')
    result = ToolResultItem("c", "Read", (Text("no such file: gone.md"),), is_error=True)
    start = answering.opening("Read gone.md", [call], [result], OFFERS)
    assert start.begun == "That did not work: no such file: gone.md"
    assert not start.goes_on


def test_the_same_look_twice_is_going_in_circles_unless_something_changed() -> None:
    look = ("Read", '{"file_path":"a"}', "x")
    change = ("Edit", '{"file_path":"a","old_string":"x","new_string":"y"}', "ok")
    assert [call.name for call in guide.since_change(after("Fix a", look))] == ["Read"]
    assert guide.since_change(after("Fix a", look, change)) == []
