"""The files that a custom command attaches to its message."""

from pathlib import Path

import pytest

from treadle.apps.assembly import build_agent
from treadle.apps.conversation.commands.expansion import expand_command
from treadle.apps.settings.command_files import CustomCommand
from treadle.apps.settings.settings import Settings
from treadle.core.transcript import Text

BODY = "Use @.env @keys/a.txt @docs/symlink @docs/hardlink @notes.txt @style.md @../x @~/y @a.key"


@pytest.fixture
def folder(own_place: Path) -> Path:
    folder = Path.cwd()
    (folder / "keys").mkdir()
    (folder / "docs").mkdir()
    for name in (".env", "keys/a.txt", "notes.txt"):
        (folder / name).write_text(f"the secret of {name}")
    (folder / "style.md").write_text("Be plain.")
    (folder / "a.key").write_text("the secret key")
    (folder / "docs" / "symlink").symlink_to("../.env")
    (folder / "docs" / "hardlink").hardlink_to(folder / ".env")
    return folder


async def expand(folder: Path, arguments: str = "", *, is_user: bool = False) -> str:
    (folder / ".treadle").mkdir()
    (folder / ".treadle" / "settings.json").write_text(
        '{"permissions": {"deny": ["Read(.env)", "Read(keys/**)"], "ask": ["Read(notes.txt)"]}}'
    )
    session = await build_agent(Settings(model="ollama/fake", sandbox="off"), folder)
    command = CustomCommand("go", "", BODY, folder / "go.md", is_user=is_user)
    try:
        message = await expand_command(session, command, arguments)
    finally:
        await session.aclose()
    return "\n".join(part.text for part in message.content if isinstance(part, Text))


async def test_a_command_of_the_project_attaches_no_file_that_the_rules_forbid(folder: Path):
    text = await expand(folder)
    assert "the secret" not in text
    assert "Be plain." in text
    for words in (
        "[.env is not attached: the rule Read(.env) denies reading it]",
        "[keys/a.txt is not attached: the rule Read(keys/**) denies reading it]",
        "[docs/symlink is not attached: the rule Read(.env) denies reading it]",
        "[docs/hardlink is not attached: the rule Read(.env) denies reading it]",
        "[notes.txt is not attached: the rule Read(notes.txt) asks before it is read]",
        "[../x is not attached: a command of the project attaches only files of the project]",
        "[~/y is not attached: a command of the project attaches only files of the project]",
        "[a.key is not attached: a.key may contain secrets]",
    ):
        assert words in text


async def test_a_command_attaches_what_the_user_names(folder: Path):
    text = await expand(folder, "and @keys/a.txt")
    assert "the secret of keys/a.txt" in text
    assert "the secret of .env" not in text


async def test_a_command_of_the_user_attaches_what_it_names(folder: Path):
    assert "the secret of .env" in await expand(folder, is_user=True)
