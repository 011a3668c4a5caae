"""What the store costs on disk: a history is written once, however often it is gone on from."""

from __future__ import annotations

from pathlib import Path

from treadle import Agent
from treadle.core.transcript.items import Item
from treadle.models import Say, Scripted
from treadle.models.scripted import ScriptElement
from treadle.sessions import Library
from treadle.sessions.history import fork, read_state
from treadle.testing.tools import RecordingTool

FORKS = 20
SMALL = 4_000  # bytes; of a fork with one short turn of its own


def occupied(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


async def test_forks_of_forks_share_one_history_and_cost_what_they_add(tmp_path: Path) -> None:
    library = Library(tmp_path / "sessions")
    long = RecordingTool(answer=lambda given: f"{given['n']} " * 50_000)  # each of them a blob
    script: list[ScriptElement] = [*(Say(calls=[("record", {"n": n})]) for n in range(10)), "done"]
    journal = library.create(tmp_path)
    whole = list((await Agent(Scripted(script), [long]).run("begin", session=journal)).transcript)
    place, before = journal.session_dir, occupied(library.root)
    assert before > 900_000
    for number in range(FORKS):
        journal, view = fork(library, place, folder=tmp_path)
        agent = Agent(Scripted([f"reply {number}"]))
        driver = agent.start(prompt=f"branch {number}", state=view, store=journal)
        await driver.next()
        await driver.aclose()
        place = journal.session_dir
    grown = occupied(library.root) - before
    assert grown < FORKS * SMALL, f"{grown} bytes more"
    last: list[Item] = list(read_state(place).transcript)
    assert last[: len(whole)] == whole
    assert len(last) == len(whole) + 2 * FORKS
