"""Whatever the agent and the user did in turns: going back takes only the agent's changes along."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from treadle.workspace.checkpoints import Checkpoints, Span

NAMES = ["a", "b", "c", "d/e", "d/f", "g", "g/h"]
State = dict[str, str]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def kept(root: Path, tmp_path: Path) -> Checkpoints:
    return Checkpoints(root, tmp_path / "store")


def look(root: Path) -> State:
    paths = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_text() for path in paths}


def change_some(root: Path, chance: random.Random, author: str) -> None:
    for _ in range(chance.randint(0, 3)):
        path = root / chance.choice(NAMES)
        try:
            if chance.random() < 0.3:
                path.unlink(missing_ok=True)
            elif chance.random() < 0.1:
                shutil.rmtree(path.parent if path.parent != root else path)
            else:
                path.parent.mkdir(exist_ok=True)
                path.write_text(f"{author} {chance.random()}")
        except OSError:
            continue  # a file where a folder is, and the reverse


def expected(states: list[tuple[str, State]], now: State) -> tuple[State, set[str]]:
    """The files after a rewind, and those that the agent and then the user changed.

    What the agent changed after the user goes back to the user's version.
    """
    result, both = dict(now), set()
    for name in NAMES:
        first: tuple[str | None] | None = None
        for (author, new), (_, old) in zip(states[1:], states, strict=False):
            if old.get(name) == new.get(name):
                continue
            if author == "agent":
                first = (old.get(name),) if first is None or name in both else first
                both.discard(name)
            elif first is not None:
                both.add(name)
        if first is None or name in both or first[0] == now.get(name):
            both -= {name} if first is None or first[0] == now.get(name) else set()
            continue
        result.pop(name, None)
        if first[0] is not None:
            result[name] = first[0]
    return result, both


@pytest.mark.parametrize("seed", range(20))
async def test_only_the_agents_changes_go_back_and_redo_brings_everything_back(
    seed: int, root: Path, kept: Checkpoints
) -> None:
    chance = random.Random(seed)
    change_some(root, chance, "user")
    spans: list[Span] = []
    states: list[tuple[str, State]] = [("user", look(root))]
    for _ in range(chance.randint(1, 4)):
        before = (await kept.take()).tree
        change_some(root, chance, "agent")
        states.append(("agent", look(root)))
        spans.append(Span(before, (await kept.take()).tree))
        change_some(root, chance, "user")
        states.append(("user", look(root)))
    now = look(root)
    plan = await kept.plan(spans)
    goal = await kept.make_goal(plan)
    done = await kept.apply(plan.current, goal.tree)
    wanted, both = expected(states, now)
    for skipped in goal.skipped:  # something else is in its place, and that is not the agent's
        wanted = {**wanted, **{k: v for k, v in now.items() if k == skipped.path}}
        if skipped.path not in now:
            wanted.pop(skipped.path, None)
    assert look(root) == wanted, f"seed {seed}"
    assert {change.path for change in plan.by("both")} == both
    assert done.skipped == ()
    back = await kept.plan([Span(plan.current, goal.tree)])
    again = await kept.make_goal(back)
    assert (await kept.apply(back.current, again.tree)).skipped == ()
    assert look(root) == now


async def test_a_file_of_the_user_in_place_of_a_folder_stays(root: Path, kept: Checkpoints) -> None:
    (root / "d").mkdir()
    (root / "d/x").write_text("old")
    before = (await kept.take()).tree
    shutil.rmtree(root / "d")
    after = (await kept.take()).tree
    (root / "d").write_text("mine")
    plan = await kept.plan([Span(before, after)])
    goal = await kept.make_goal(plan)
    await kept.apply(plan.current, goal.tree)
    assert look(root) == {"d": "mine"}
    assert [skipped.path for skipped in goal.skipped] == ["d/x"]
