"""What is different for OpenAI's models: they change files by patches, under the same rules."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import json
from pathlib import Path

import treadle
from tests.apps.program import Ran, run
from treadle.apps.console import exit_codes
from treadle.models import Say, Scripted
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

LAST = FakeReply("That is all.")
PATCH = "*** Begin Patch\n*** Add File: infra/a.txt\n+one\n*** End Patch"


async def ask(server: ProviderServer, model: str, *arguments: str) -> Ran:
    words = ("-p", "go", "--model", model, "--sandbox", "off", *arguments)
    return await run(server, *words, OPENAI_API_KEY="k", OPENAI_BASE_URL=f"{server.url}/v1")


def tool_names(server: ProviderServer) -> list[str]:
    return [tool["name"] for tool in json.loads(server.requests[0].body)["tools"]]


async def test_apply_patch_is_offered_to_models_of_openai_and_to_no_others():
    for model, is_offered in (("openai/gpt-5", True), ("anthropic/claude-sonnet-4-5", False)):
        async with ProviderServer([LAST]) as server:
            assert (await ask(server, model)).code == 0
        assert ("apply_patch" in tool_names(server)) is is_offered
        assert ("edit" in tool_names(server)) is not is_offered
        assert "write" in tool_names(server)


async def test_a_patch_changes_files_and_can_be_undone():
    call = FakeReply(calls=(FakeCall("apply_patch", {"patch": PATCH}),))
    async with ProviderServer([call, LAST]) as server:
        ran = await ask(server, "openai/gpt-5", "--permission-mode", "accept-edits")
    assert (ran.code, Path("infra/a.txt").read_text()) == (0, "one\n")
    assert (await run(None, "undo")).code == 0
    assert not Path("infra").exists()


async def test_a_model_that_has_edit_may_apply_a_patch_too(own_place: Path):
    other = PATCH.replace("a.txt", "b.txt")
    calls = [
        ("apply_patch", {"patch": PATCH}),
        ("bash", {"command": f"apply_patch <<'E'\n{other}\nE"}),
    ]
    model = Scripted([Say(calls=calls), "done"])
    agent = treadle.coding_agent(
        own_place / "cwd", model=model, sandbox="off", permission_mode="accept-edits"
    )
    async with agent:
        await agent.run("go")
    assert (Path("infra/a.txt").read_text(), Path("infra/b.txt").read_text()) == ("one\n", "one\n")
    names = [spec.name for spec in model.requests[0].tools]
    assert ("edit" in names, "apply_patch" in names) == (True, False)


async def test_a_rule_and_a_hook_for_edits_also_stop_a_patch():
    call = FakeReply(calls=(FakeCall("apply_patch", {"patch": PATCH}),))
    async with ProviderServer([call, LAST]) as server:
        ran = await ask(
            server, "openai/gpt-5", "--permission-mode", "auto", "--deny", "Edit(infra/**)"
        )
    assert ran.code in (0, exit_codes.APPROVAL_NEEDED)
    assert not Path("infra").exists()
    stop = {"matcher": "Edit", "hooks": [{"type": "command", "command": "echo no >&2; exit 2"}]}
    settings = Path.home() / ".treadle/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [stop]}}))
    async with ProviderServer([call, LAST]) as server:
        await ask(server, "openai/gpt-5", "--permission-mode", "bypass")
    assert not Path("infra").exists()
