"""Calls as models make them: `malformed_calls.jsonl` has each with what it means, or null."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.helpers import hands
from treadle import Agent
from treadle.core.contracts.policy import Deny, PermissionRequest, Verdict
from treadle.core.contracts.tool import (
    BaseTool,
    RepairedArguments,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.events import ToolCallRequested, ToolStarted
from treadle.core.loop.calls.call_repair import CallRepairer
from treadle.core.loop.calls.toolbox import Toolbox
from treadle.core.loop.emitter import Emitter
from treadle.core.transcript.content import ToolCall, parse_arguments
from treadle.core.transcript.items import AssistantItem, ResultNote, ToolResultItem
from treadle.models import Say, Scripted
from treadle.testing import RecordingObserver
from treadle.tools import tool
from treadle.tools.builtin import ALL_TOOLS
from treadle.tools.builtin.files.edit import WHITESPACE_NOTE

CALLS = [
    json.loads(line)
    for line in Path(__file__).with_name("malformed_calls.jsonl").read_text("utf-8").splitlines()
]
DOCS = Path(__file__).parents[3] / "docs" / "tools.md"


class Judge:
    """Denies every call, and remembers what it was asked about."""

    def __init__(self) -> None:
        self.asked: dict[str, PermissionRequest] = {}

    async def decide(self, request: PermissionRequest) -> Verdict:
        self.asked[request.call_id] = request
        return Deny("not now")

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        raise AssertionError("no rule is saved")


async def test_malformed_calls_are_repaired_or_told_what_is_allowed(folder: Path) -> None:
    judge = Judge()
    calls = [ToolCall(f"c{n}", call["name"], call["raw"]) for n, call in enumerate(CALLS)]
    async with hands(folder) as place:
        agent = Agent(Scripted([Say(calls=calls), "done"]), [place.tools], policy=judge)
        result = await agent.run("go")
    assert result.text == "done"
    reply = next(item for item in result.transcript if isinstance(item, AssistantItem))
    results = {one.call_id: one for one in result.transcript if isinstance(one, ToolResultItem)}
    table: Counter[tuple[str, str]] = Counter()
    made = {str(one.id): one for one in reply.calls}
    for given, expected in zip(calls, CALLS, strict=True):
        means = expected["means"]
        if means is not None and isinstance(means[0], list):  # several calls
            parts = [made[f"{given.id}-{number}"] for number in range(1, len(means) + 1)]
            assert [[one.name, one.arguments] for one in parts] == means
            assert [judge.asked[one.id].arguments for one in parts] == [one[1] for one in means]
            table[expected["kind"], "repaired"] += 1
            continue
        call = made[given.id]
        answer, request = results[call.id], judge.asked.get(call.id)
        if means is None:
            assert request is None, f"{expected['raw']!r} was put to the policy"
            assert answer.text.startswith("error: "), answer.text
            assert _lists_what_is_allowed(answer.text, call), answer.text
            table[expected["kind"], "refused"] += 1
            continue
        assert [call.name, call.arguments] == means, "the transcript has the call that is meant"
        assert request is not None, expected
        assert [request.tool.name, request.arguments] == means, "and the policy judges it"
        assert (f"[corrected: {call.repaired}]" in answer.model_text) == bool(call.repaired)
        table[expected["kind"], "repaired" if call.repaired else "accepted"] += 1
        table[expected["kind"], "guessed"] += call.is_guessed  # of the repaired ones
    assert format_table(table) in DOCS.read_text(encoding="utf-8"), format_table(table)


def _lists_what_is_allowed(text: str, call: ToolCall) -> bool:
    if call.name not in ALL_TOOLS:
        return "The tools are read, write, edit" in text
    words = ("takes ", "expected ", "is missing", "given twice")
    return any(word in text for word in words)


def format_table(table: Counter[tuple[str, str]]) -> str:
    outcomes = ("accepted", "repaired", "guessed", "refused")
    rows = [f"| what is wrong | calls | {' | '.join(outcomes)} |", "|---" * 6 + "|"]
    for kind, calls in Counter(call["kind"] for call in CALLS).items():
        counts = [table[kind, outcome] for outcome in outcomes]
        rows.append(f"| {kind} | {calls} | {' | '.join(map(str, counts))} |")
    totals = [sum(n for (_, one), n in table.items() if one == outcome) for outcome in outcomes]
    rows.append(f"| all | {len(CALLS)} | {' | '.join(map(str, totals))} |")
    return "\n".join(rows)


async def test_a_call_that_was_cut_off_anywhere_is_never_repaired(folder: Path) -> None:
    async with hands(folder) as place:
        toolbox = Toolbox(place.tools, Emitter((), "s"))
        toolbox.refresh()
        repairer = CallRepairer(toolbox)
        for expected in CALLS:
            raw = expected["raw"]
            if not isinstance(parse_arguments(raw), dict) or len(raw) > 500:
                continue
            for end in range(1, len(raw)):
                for call in repairer.repair(ToolCall("c", expected["name"], raw[:end])):
                    assert call.arguments is None, f"{raw[:end]!r} became {call.raw!r}"


async def test_a_tool_whose_repair_fails_gets_the_call_as_it_is() -> None:
    class Broken(BaseTool):
        spec = ToolSpec("look", "", {"properties": {"any": True}}, effect="pure")

        def repair(self, arguments: Any) -> RepairedArguments:
            raise RuntimeError("broken")

        async def call(self, arguments: Any, context: ToolContext) -> ToolOutput:
            return ToolOutput(str(arguments))

    result = await Agent(Scripted([Say(calls=[("look", {"Any": 1})]), "done"]), [Broken()]).run(
        "go"
    )
    (answer,) = (one for one in result.transcript if isinstance(one, ToolResultItem))
    assert answer.text == "{'Any': 1}"


async def test_a_tool_of_a_program_is_found_whatever_the_case_of_its_name() -> None:
    given: list[tuple[str, int]] = []

    @tool
    def book_table(guest_name: str, seats: int) -> str:
        given.append((guest_name, seats))
        return "booked"

    calls = [
        ("BookTable", {"guestName": "Ada", "seats": 2}),
        ("book_table", {"guest_name": "Eva", "seats": 1}),
    ]
    agent = Agent(Scripted([Say(calls=calls), "done"]), [book_table])
    result = await agent.run("go")
    repaired, plain = (one for one in result.transcript if isinstance(one, ToolResultItem))
    assert given == [("Ada", 2), ("Eva", 1)]
    assert repaired.name == "book_table"
    assert repaired.model_text == (
        "booked\n[corrected: the tool is named `book_table`; `guestName` is `guest_name`]"
    )
    assert plain.text == "booked"


async def test_a_name_that_two_tools_could_have_is_not_guessed() -> None:
    @tool(name="get_user")
    def one() -> str:
        raise AssertionError

    @tool(name="getUser")
    def other() -> str:
        raise AssertionError

    agent = Agent(Scripted([Say(calls=[("GetUser", {})]), "done"]), [one, other])
    result = await agent.run("go")
    (answer,) = (one for one in result.transcript if isinstance(one, ToolResultItem))
    assert answer.text.startswith("error: unknown tool `GetUser`")


FILE = "class A:\n    def one(self):\n        if self.x:\n            return 1\n\n    y = 2\n"


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("def one(self):\n    if self.x:\n        return 1", "def one(self):\n    return 2",
         "class A:\n    def one(self):\n        return 2\n\n    y = 2\n"),
        ("\t\tif self.x:\n\t\t\treturn 1\n", "\t\tif self.x:\n\t\t\tif self.y:\n\t\t\t\treturn 1\n",
         FILE.replace("    return 1", "    if self.y:\n                return 1")),
        ("    y = 2   \n", "    y = 3\n", FILE.replace("y = 2", "y = 3")),
        ("    y  =  2", "    y = 3", FILE.replace("y = 2", "y = 3")),
    ],
)  # fmt: skip
async def test_an_edit_that_differs_only_in_white_space_is_made_and_said(
    folder: Path, old: str, new: str, after: str
) -> None:
    (folder / "a.py").write_text(FILE)
    async with hands(folder) as place:
        answer = await place.one("edit", file_path="a.py", old_string=old, new_string=new)
    assert answer.text.startswith("Edited a.py. It now reads:"), answer.text
    assert answer.notes == (ResultNote("corrected", f"[corrected: {WHITESPACE_NOTE}]"),)
    assert (folder / "a.py").read_text() == after


async def test_white_space_does_not_choose_between_two_places(folder: Path) -> None:
    (folder / "a.py").write_text("if a:\n    x = 1\nif b:\n        x = 1\n")
    async with hands(folder) as place:
        answer = await place.one("edit", file_path="a.py", old_string="\tx = 1\n", new_string="y")
    assert answer.is_error
    assert "x = 1" in (folder / "a.py").read_text()


async def test_a_regular_expression_that_is_none_is_searched_as_text(folder: Path) -> None:
    (folder / "a.py").write_text("call(x[0)\nfoobar\nfoo\n")
    async with hands(folder) as place:
        text = await place.one("grep", pattern="x[0)", output_mode="content")
        ahead = await place.one("grep", pattern="foo(?=bar)", output_mode="content")
    assert text.text == "a.py:1:call(x[0)"
    assert text.model_text == (
        "a.py:1:call(x[0)\n"
        "[corrected: the pattern is no valid regular expression; it was searched as text]"
    )
    assert ahead.text == "a.py:2:foobar" or "searched as text" in ahead.model_text


def _heredoc(body: str, quote: str = "'") -> dict[str, Any]:
    return {"command": f"apply_patch <<{quote}EOF{quote}\n{body}\nEOF"}


PATCH = "*** Begin Patch\n*** Add File: n.txt\n+hi\n*** End Patch"


@pytest.mark.parametrize(
    "arguments",
    [
        _heredoc(PATCH),
        _heredoc(PATCH, ""),
        _heredoc(PATCH, '"'),
        {"command": ["apply_patch", PATCH]},
        {"command": ["bash", "-lc", _heredoc(PATCH)["command"]]},
        {"cmd": f"apply_patch '{PATCH}'"},
        {"command": f'apply_patch "{PATCH}"\n'},
        {"command": ["bash", "-lc", f'apply_patch "{PATCH}"']},
        {"command": f'bash -lc "{_heredoc(PATCH)["command"]}"'},
        {"command": f"/bin/sh -c '{_heredoc(PATCH, '')['command']}\n'"},
    ],
)
async def test_a_patch_that_comes_as_a_command_is_a_call_of_apply_patch(
    folder: Path, arguments: dict[str, Any]
) -> None:
    judge = Judge()
    async with hands(folder, agent={"policy": judge}) as place:
        answer = await place.one("bash", **arguments)
    (request,) = judge.asked.values()
    assert (request.tool.name, answer.name) == ("apply_patch", "apply_patch")
    assert [(one.path, one.mode) for one in request.access.files] == [("n.txt", "write")]
    assert "`apply_patch` is a tool of its own" in answer.model_text


async def test_a_patch_for_another_folder_keeps_its_folder(folder: Path) -> None:
    (folder / "src/sub").mkdir(parents=True)
    (folder / "src/old.py").write_text("x\n")
    patch = (
        "*** Begin Patch\n*** Update File: ../old.py\n*** Move to: new.py\n-x\n+y\n*** End Patch"
    )
    command = f"cd sub && {_heredoc(patch)['command']}"
    async with hands(folder) as place:
        answer = await place.one("bash", command=command, workdir="src")
    assert answer.name == "apply_patch"
    assert (folder / "src/sub/new.py").read_text() == "y\n", answer.text
    assert not (folder / "src/old.py").exists()


@pytest.mark.parametrize(
    "command",
    [
        _heredoc(PATCH)["command"] + "\nrm -rf src",
        _heredoc(PATCH.replace("hi", "$HOME"), "")["command"],
        f"cd $HOME && {_heredoc(PATCH)['command']}",
        f"echo apply_patch '{PATCH}'",
        f'apply_patch "{PATCH}" "{PATCH}"',
        f'apply_patch "{PATCH.replace("hi", "$HOME")}"',
        f'apply_patch "{PATCH.replace("hi", "`id`")}"',
        f'bash -lc "{_heredoc(PATCH.replace("hi", "$HOME"))["command"]}"',
        f'bash -lc "{_heredoc(PATCH)["command"]}"; rm -rf src',
        f'python -c "{_heredoc(PATCH)["command"]}"',
    ],
)
async def test_a_command_that_does_more_than_patch_stays_a_command(
    folder: Path, command: str
) -> None:
    judge = Judge()
    async with hands(folder, agent={"policy": judge}) as place:
        answer = await place.one("bash", command=command)
    (request,) = judge.asked.values()
    assert (request.tool.name, request.access.command, answer.name) == ("bash", command, "bash")


async def test_what_is_shown_is_the_call_that_is_meant_and_it_runs_once(folder: Path) -> None:
    (folder / "a.txt").write_text("one\n")
    witness = RecordingObserver()
    async with hands(folder, agent={"observers": [witness]}) as place:
        answer = await place.one("Read", path="a.txt")
    assert answer.text.startswith("1\tone")
    requested = [event.call for event in witness.events if isinstance(event, ToolCallRequested)]
    assert [(call.name, call.arguments) for call in requested] == [("read", {"file_path": "a.txt"})]
    started = [event for event in witness.events if isinstance(event, ToolStarted)]
    assert [(event.name, event.summary) for event in started] == [("read", "[read: a.txt]")]


@pytest.mark.parametrize("is_text", [False, True])
async def test_calls_in_one_call_of_a_wrapper_are_calls_of_their_own(
    folder: Path, is_text: bool
) -> None:
    (folder / "a.py").write_text("x = 1\n")
    parameters: list[Any] = [{"path": "a.py"}, {"pattern": "*.py"}]
    if is_text:
        parameters = [json.dumps(one) for one in parameters]
    uses = [
        {"recipient_name": "functions.read", "parameters": parameters[0]},
        {"recipient_name": "functions.glob", "parameters": parameters[1]},
    ]
    call = ToolCall("c", "multi_tool_use.parallel", json.dumps({"tool_uses": uses}))
    async with hands(folder) as place:
        agent = Agent(Scripted([Say(calls=[call]), "done"]), [place.tools])
        result = await agent.run("go")
    reply = next(item for item in result.transcript if isinstance(item, AssistantItem))
    results = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert [(one.id, one.name) for one in reply.calls] == [("c-1", "read"), ("c-2", "glob")]
    assert [one.call_id for one in results] == ["c-1", "c-2"]
    assert ["x = 1" in results[0].text, "a.py" in results[1].text] == [True, True]
    assert all("it was in `multi_tool_use.parallel`" in one.model_text for one in results)


async def test_a_read_of_several_files_is_a_call_for_each(folder: Path) -> None:
    for name in ("a.py", "b.py"):
        (folder / name).write_text(f"name = {name!r}\n")
    uses = [
        {"recipient_name": "Read", "parameters": {"file_paths": ["a.py", "b.py"], "limit": 1}},
        {"recipient_name": "glob", "parameters": {"pattern": "*.py"}},
    ]
    call = ToolCall("c", "multi_tool_use.parallel", json.dumps({"tool_uses": uses}))
    async with hands(folder) as place:
        agent = Agent(Scripted([Say(calls=[call]), "done"]), [place.tools])
        result = await agent.run("go")
    results = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert [one.call_id for one in results] == ["c-1-1", "c-1-2", "c-2"]
    assert ["'a.py'" in results[0].text, "'b.py'" in results[1].text] == [True, True]
    assert "each file of `file_paths` has a call of its own" in results[1].model_text


SENTENCES = (
    "where is the text parsed?",
    '"adds two numbers"',
    "Where does the app parse (and check) the config?",
    r"Where does the app parse \(and check\) the config\?",
    r"adds\s+two\s+numbers",
    "cache: how; is `it` used…",
    "where does [x] come from",
)


@pytest.mark.parametrize("sentence", SENTENCES)
async def test_a_search_for_a_sentence_says_how_to_search(folder: Path, sentence: str) -> None:
    (folder / "a.py").write_text("def parse(): ...\n")
    async with hands(folder) as place:
        found = await place.one("grep", pattern=sentence)
        names = await place.one("glob", pattern=sentence)
    assert "search for one word" in found.text
    assert "search for one word" in names.text


@pytest.mark.parametrize("pattern", ["compile", "parse_all|read_all|x", r"def\s+load\(", "a += 1"])
async def test_another_search_that_finds_nothing_only_says_so(folder: Path, pattern: str) -> None:
    (folder / "a.py").write_text("def parse(): ...\n")
    async with hands(folder) as place:
        assert (await place.one("grep", pattern=pattern)).text == "No matches."
