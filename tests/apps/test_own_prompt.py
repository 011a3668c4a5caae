"""A system prompt and an output style of one's own, through the real program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.program import run
from treadle.testing.provider import FakeReply, ProviderServer

STYLE = "---\nname: {}\ndescription: Says why\n---\n{}\n"


def write(file: str | Path, text: str) -> None:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(text)


async def read_prompt(*words: str) -> tuple[str, str]:
    """The prompt, and the notes."""
    ran = await run(None, "prompt", "--model", "sonnet", *words, ANTHROPIC_API_KEY="k")
    assert ran.code == 0, ran.err
    return ran.out, ran.err


async def test_a_text_of_the_user_stands_in_place_of_the_instructions():
    write("AGENTS.md", "Use tabs.")
    await run(None, "trust")
    prompt, sizes = await read_prompt("--system-prompt", "You are a poet.")
    assert prompt.startswith("You are a poet.")
    assert "You are Treadle" not in prompt
    assert "# How to work" not in prompt
    assert "# Environment" in prompt
    assert "Use tabs." in prompt
    assert "own text" in sizes
    write(Path.home() / ".treadle/config.toml", 'system_prompt = "@~/poet.md"\n')
    write(Path.home() / "poet.md", "You are a poet of the file.")
    write("end.md", "The end.")
    prompt, _ = await read_prompt("--append-system-prompt", "@end.md")
    assert prompt.startswith("You are a poet of the file.")
    assert prompt.rstrip().endswith("The end.")


async def test_the_model_gets_the_text_of_the_flag():
    async with ProviderServer((FakeReply("A rose."),)) as server:
        ran = await run(server, "-p", "hi", "--system-prompt", "You rhyme.", "--model", "sonnet")
        assert (ran.code, ran.out) == (0, "A rose.\n")
        assert "You rhyme." in str(server.requests[0].json["system"])
        assert "You are Treadle" not in str(server.requests[0].json)


async def test_a_file_that_is_not_there_is_named():
    ran = await run(None, "prompt", "--system-prompt", "@none.md", ANTHROPIC_API_KEY="k")
    assert ran.code == 2
    assert "--system-prompt: " in ran.err
    assert "none.md: No such file" in ran.err


async def test_styles_of_the_user_and_of_a_trusted_folder_are_used():
    write(Path.home() / ".claude/output-styles/why.md", STYLE.format("Why", "Give reasons."))
    write(".claude/output-styles/pirate.md", STYLE.format("Pirate", "Speak as a pirate."))
    prompt, _ = await read_prompt("--output-style", "Why")
    assert "# Output style: Why\nGive reasons." in prompt
    assert prompt == (await read_prompt("--output-style", "why"))[0]
    assert "# How to work" in prompt
    refused = await run(None, "prompt", "--model", "sonnet", "--output-style", "Pirate")
    assert refused.code == 2
    assert "there is no output style 'Pirate'; there are: default, Why" in refused.err
    await run(None, "trust")
    assert "Speak as a pirate." in (await read_prompt("--output-style", "Pirate"))[0]


@pytest.mark.parametrize("name", ["outputStyle", "output_style"])
async def test_the_style_of_the_settings_is_used(name: str):
    write(Path.home() / ".treadle/output-styles/why.md", "Give reasons.")
    write(".treadle/output-styles/broken.md", "---\nname: x\n---\n")
    if name == "outputStyle":
        write(Path.home() / ".claude/settings.json", '{"outputStyle": "why"}')
    else:
        write(Path.home() / ".treadle/config.toml", 'output_style = "why"')
    await run(None, "trust")
    prompt, notes = await read_prompt()
    assert "# Output style: why\nGive reasons." in prompt
    assert "broken.md: the style has no text" in notes


async def test_an_output_style_that_does_not_exist_is_a_usage_error():
    ran = await run(None, "-p", "hi", "--output-style", "unknown")
    assert ran.code == 2
    assert "there is no output style 'unknown'; there are: default" in ran.err
