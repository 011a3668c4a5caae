"""A full disk: the prompt works on, nothing is lost, and one line says what is not kept."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.tui import harness
from tests.apps.tui.harness import running_app, scripted
from treadle.apps.tui.app import TerminalApp
from treadle.apps.tui.inline import InlineApp
from treadle.apps.tui.input.drafts import Drafts, make_draft
from treadle.apps.tui.input.prompt_history import MAX_LINES, PromptHistory

EARLIER = f'"{"e" * 4093}"\n'  # fills its page
NOT_KEPT = "what you type is not kept if the program ends before you send it: No space"


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB with an older history, and no room for more."""
    place = tmp_path / "full"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    history = place / "history.jsonl"
    history.write_text(EARLIER)
    with (place / "filler").open("wb", buffering=0) as filler:
        try:
            while filler.write(b"x" * 4096) == 4096:
                pass
        except OSError:
            pass
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("app_class", [TerminalApp, InlineApp])
async def test_it_is_said_once_that_a_draft_is_not_kept_and_the_session_goes_on(
    monkeypatch, full_disk: Path, app_class: type[TerminalApp]
):
    monkeypatch.setattr(harness, "TerminalApp", app_class)
    history, drafts = full_disk / "history.jsonl", full_disk / "drafts"
    model = scripted(["Hello.", "Bye."])
    async with running_app(monkeypatch, model, history_file=history, drafts_dir=drafts) as on:
        await on.type("a message")
        await on.app._draft.save()
        assert NOT_KEPT in str(on.app.conversation.view.blocks[-1])
        await on.type("b")
        await on.app._draft.save()
        await on.press("enter")
        await on.idle()
        assert len([one for one in on.app.conversation.view.blocks if NOT_KEPT in str(one)]) == 1
        await on.press("up")
        assert on.app.prompt.text.startswith("a message")  # this process has it
        await on.type("c")
        await on.app._close(0)
        assert on.app.unshown_messages[-1].startswith("the message that you had not sent is not")
    assert history.read_text() == EARLIER
    assert not [file for file in drafts.iterdir() if file.stat().st_size]


async def test_a_draft_that_was_sent_is_removed_also_when_the_next_one_cannot_be_written(
    tmp_path: Path, full_disk: Path
):
    drafts = Drafts(full_disk / "drafts", tmp_path)
    (full_disk / "filler").unlink()
    assert drafts.save(make_draft("s", "first", {})) == ""
    assert drafts.save(make_draft("s", "x" * 100_000, {})) == "No space left on device"
    drafts.remove()
    drafts.close()
    assert list((full_disk / "drafts").iterdir()) == []


def test_the_history_is_not_lost_when_its_file_is_made_smaller_on_a_full_disk(full_disk: Path):
    file = full_disk / "history.jsonl"
    (full_disk / "filler").unlink()
    history = PromptHistory(file)
    for number in range(2 * MAX_LINES + 5):
        history.add(f"{number} {'x' * 60}")
    kept = file.read_text().splitlines()
    assert kept[0] == EARLIER.strip()
    assert all(line.startswith('"') and line.endswith('"') for line in kept)
