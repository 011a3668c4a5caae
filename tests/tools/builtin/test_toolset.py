from __future__ import annotations

import re
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.helpers import ALL, failed, hands, plain
from tests.workspace.helpers import opened
from treadle import Agent
from treadle.core.errors import ConfigError
from treadle.models import Say, Scripted
from treadle.models.embedded.small_toolset import select_small_tools
from treadle.permissions.policy import RulePolicy, build_policy_context
from treadle.permissions.ruleset.rules import READ_TOOLS as READ_RULES
from treadle.permissions.ruleset.rules import WRITE_TOOLS as WRITE_RULES
from treadle.permissions.ruleset.rules import RuleSet, normalize_tool_name
from treadle.permissions.ruleset.rules_file import parse_rules
from treadle.testing.conformance.source import check_tool_source
from treadle.tools.builtin import READ_ONLY_TOOLS, SMALL_TOOLS, STANDARD_TOOLS, builtin_tools

PAGE = (Path(__file__).parents[3] / "docs/tools.md").read_text()

# Arguments whose name is all that there is to say.
SAYS_IT_ALL = {
    "file_path", "path", "pattern", "command", "content", "source", "mode", "output_mode",
}  # fmt: skip


async def test_the_set_keeps_the_promises_of_a_source(folder: Path) -> None:
    async with opened(folder) as workspace:
        await check_tool_source(lambda: builtin_tools(workspace, ALL))


async def test_sets_are_chosen_by_name(folder: Path) -> None:
    async with opened(folder) as workspace:
        for names in (STANDARD_TOOLS, SMALL_TOOLS, READ_ONLY_TOOLS, ("bash", "bash")):
            chosen = [tool.spec.name for tool in builtin_tools(workspace, names).tools()]
            assert chosen == list(dict.fromkeys(names))
        with pytest.raises(ConfigError, match="no built-in tool 'sing'"):
            builtin_tools(workspace, ["sing"])


async def test_the_page_of_the_tools_lists_each_with_its_effect_and_arguments(folder: Path) -> None:
    async with opened(folder) as workspace:
        specs = [tool.spec for tool in builtin_tools(workspace, ALL).tools()]
    real = {spec.name: (spec.effect, {*spec.schema["properties"]}) for spec in specs}
    table = PAGE.split("| tool | effect | arguments | notes |\n|---|---|---|---|\n")[1]
    listed = {}
    for row in table.split("\n\n")[0].splitlines():
        names, effects, arguments = (cell.strip() for cell in row.split("|")[1:4])
        pairs = zip(re.findall(r"`(\w+)`", names), cycle(effects.split(", ")), strict=False)
        for name, effect in pairs:
            listed[name] = effect, {*re.findall(r"`([\w-]+)`", arguments)}
    assert {name: listed.get(name) for name in real} == real


async def test_every_tool_is_described_and_says_what_it_does_to_the_world(folder: Path) -> None:
    async with opened(folder) as workspace:
        source = builtin_tools(workspace, ALL)
        specs = {tool.spec.name: tool.spec for tool in source.tools()}
    for spec in specs.values():
        assert len(spec.description) > 40
        arguments = spec.schema["properties"]
        undescribed = {name for name, about in arguments.items() if "description" not in about}
        assert undescribed <= SAYS_IT_ALL
        assert "$ref" not in str(spec.schema)
    effects = {name: spec.effect for name, spec in specs.items()}
    assert {name for name, effect in effects.items() if effect == "irreversible"} == {
        "bash", "task_input",
    }  # fmt: skip
    assert {name for name, effect in effects.items() if effect == "verifiable"} == {
        "write", "edit", "apply_patch", "notebook_edit", "task_stop",
    }  # fmt: skip


async def test_a_small_model_is_offered_the_small_set_by_its_own_words(folder: Path) -> None:
    async with opened(folder) as workspace:
        specs = [tool.spec for tool in builtin_tools(workspace, SMALL_TOOLS).tools()]
    assert {offer.short_name for offer in select_small_tools(specs)} >= set(SMALL_TOOLS)


async def test_the_policy_knows_the_tools_that_touch_files(folder: Path) -> None:
    assert {normalize_tool_name(name) for name in READ_ONLY_TOOLS} == READ_RULES
    assert {"write", "edit", "applypatch"} <= WRITE_RULES


LOOSE: list[tuple[str, dict[str, Any]]] = [
    ("read", {"file": "a.txt"}),
    ("glob", {"pattern": "*", "directory": "."}),
    ("grep", {"pattern": "x", "path": "."}),
    ("ls", {}),
]


async def test_reading_needs_no_question_and_writing_does(folder: Path) -> None:
    (folder / "a.txt").write_text("x\n")
    rules = parse_rules({"allow": ["Edit(ok/**)"]}, root=str(folder), home="/nowhere")
    policy = RulePolicy(build_policy_context(folder, rules), interactive=False)
    patch = (
        "*** Begin Patch\n*** Add File: ok/p.txt\n+x\n*** Add File: not/p.txt\n+x\n*** End Patch"
    )
    async with hands(folder, agent={"policy": policy}) as agent:
        items = await agent.do(
            *LOOSE,
            ("write", {"path": "ok/new.txt", "content": ""}),
            ("write", {"path": "new.txt", "content": ""}),
            ("apply_patch", {"input": patch}),
            ("web_fetch", {"url": "https://example.org/"}),
            ("bash", {"command": "rm a.txt"}),
        )
    for item in items[:5]:
        plain(item)
    for item in items[5:]:
        assert failed(item).startswith("denied: ")
    assert (folder / "ok/new.txt").exists()
    assert not (folder / "ok/p.txt").exists()


async def test_what_is_judged_in_a_folder_below_is_what_is_written_there(folder: Path) -> None:
    """`config` in .git is protected, whatever the working directory makes of its name."""
    (folder / ".git").mkdir()
    rules = RuleSet() + parse_rules(
        {"allow": ["Edit", "Bash(cd:*)"]}, root=str(folder), home="/nowhere"
    )
    async with opened(folder) as workspace:
        tools = builtin_tools(workspace)
        driver_id = "one-session"
        policy = RulePolicy(
            build_policy_context(folder, rules),
            interactive=False,
        )
        calls = [
            ("bash", {"command": "cd .git"}),
            ("write", {"file_path": "config", "content": "x"}),
        ]
        model = Scripted([Say(calls=calls), Say(calls=calls[1:]), "done"])
        driver = Agent(model, [tools], policy=policy).start(prompt="go", session_id=driver_id)
        agent = Agent(model, [tools], policy=policy)
        await agent._drive(driver, agent._ask_approver)
        await driver.aclose()
    assert not (folder / ".git/config").exists()
    assert (folder / "config").read_text() == "x", "judged and done at the top"


async def test_a_wrong_argument_of_a_built_in_tool_is_named_in_plain_words(folder: Path) -> None:
    async with hands(folder) as place:
        wrong = await place.one("read", file_path="a.txt", limit="many")
        missing = await place.one("read")
    assert failed(wrong).endswith(
        ': limit: expected an integer, got "many". read takes file_path (required), offset, limit.'
    )
    assert ": file_path: missing, expected text. read takes" in failed(missing)


def test_nothing_heavy_is_loaded_with_the_tools() -> None:
    code = (
        "import sys; import treadle.agents.agent; before = set(sys.modules); "
        "import treadle.tools.builtin; new = set(sys.modules) - before; "
        "heavy = {'httptools', 'html.parser', 'http.client', "
        "'treadle.workspace', 'treadle.permissions'};"
        "print(sorted(new & heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
