"""`treadle prompt`: the very text that a run would send, and the size of its parts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.apps.program import run as program
from treadle.apps.assembly import build_agent
from treadle.apps.cli.commands import prompt
from treadle.apps.settings.load import load_settings
from treadle.context.prompt import read_section
from treadle.sessions.library import Library
from treadle.testing.provider import FakeReply, ProviderServer


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    assert prompt.run(list(arguments)) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


def rows_of(sizes: str) -> str:
    return " ".join(line.split()[0] for line in sizes.splitlines() if "chars  ~" in line)


async def test_it_is_what_a_run_sends():
    async with ProviderServer([FakeReply("Hello.")]) as server:
        assert (await program(server, "-p", "hi", "--model", "sonnet")).code == 0
        shown = await program(server, "prompt", "-p", "--model", "sonnet")
        [request] = server.generation_requests
    parts = msgspec.convert(request.json["system"], list[dict[str, object]])
    assert shown.out == "".join(str(part["text"]) for part in parts) + "\n"


def test_each_section_has_its_size_and_all_of_them_the_whole(capsys):
    Path("AGENTS.md").write_text("Use tabs.")
    (Path.home() / ".treadle").mkdir()
    (Path.home() / ".treadle" / "AGENTS.md").write_text("Speak plainly.")
    text, sizes = told(capsys, "--model", "sonnet", "--permission-mode", "plan")
    assert "Speak plainly." in text
    assert "Use tabs." not in text
    assert "AGENTS.md ignored: the folder is not trusted" in sizes
    assert rows_of(sizes) == "identity working changes family environment memory all"
    whole = next(line for line in sizes.splitlines() if line.startswith("all"))
    assert f"{len(text.strip()):,} chars" in whole
    assert read_section("plan").strip() not in text  # the mode is a notice: it may change


def test_skills_have_a_size_of_their_own(capsys):
    place = Path.home() / ".treadle" / "skills" / "release"
    place.mkdir(parents=True)
    head = "---\nname: release\ndescription: Cut a release.\n---\n"
    (place / "SKILL.md").write_text(f"{head}Run the script.\n")
    text, sizes = told(capsys, "--model", "sonnet", "-p")
    assert "- release: Cut a release." in text
    assert rows_of(sizes) == "identity working changes family environment skills all"


async def test_sections_put_together_are_what_the_agent_says():
    settings = load_settings(Path.cwd(), {"model": "sonnet"}, is_trusted=lambda: False)
    wired = await build_agent(settings, Path.cwd())
    await wired.store.aclose()
    await wired.aclose()
    sections = [section.text.strip() for section in wired.prompt.sections if section.text]
    assert "\n\n".join(sections) == wired.agent.config.instructions


def test_servers_that_are_not_started_for_it_are_named(capsys):
    file = Path.home() / ".treadle" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {"tiny": {"command": "false"}}}')
    _, sizes = told(capsys, "--model", "sonnet")
    assert (
        sizes.splitlines()[-1]
        == "not included: tools of MCP servers, which are not started here: tiny"
    )
    _, sizes = told(capsys, "--model", "embedded")
    assert "MCP servers are off: embedded" in sizes


def test_the_tools_definitions_can_be_seen(capsys):
    text, sizes = told(capsys, "--model", "sonnet", "--tools")
    assert "## read\n" in text
    assert '"type":"object"' in text
    assert "tools: " in sizes


def test_a_small_model_is_told_little(capsys):
    text, sizes = told(capsys, "--model", "embedded")
    assert text.strip() == read_section("small").strip()
    assert sizes.splitlines()[-2].startswith("all")


def test_no_session_is_left_behind(capsys):
    told(capsys, "--model", "sonnet")
    assert list(Library().list_session_dirs()) == []
    assert list(Library().root.glob("*/*")) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "nobody/x"], "no model or provider is called 'nobody/x'"),
        (["--model"], "--model needs a value"),
        (["--permission-mode", "yolo"], "it must be one of plan, ask"),
        (["sonnet"], "unknown argument 'sonnet'"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_and_exit_code_2(arguments, words, capsys):
    assert prompt.run(arguments) == 2
    assert words in capsys.readouterr().err
