"""Whatever the agent and the user did in turns: going back takes only the agent's changes along."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from treadle.workspace.checkpoints.checkpoints import Checkpoints, Span
from treadle.workspace.checkpoints.restore_plan import RestoreChange, RestorePlan, merge_lines

NAMES = ["a", "b", "c", "d/e", "d/f", "g", "g/h"]
State = dict[str, str]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def kept(root: Path, tmp_path: Path) -> Iterator[Checkpoints]:
    with closing(Checkpoints(root, tmp_path / "store")) as checkpoints:
        yield checkpoints


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


# ------------------------------------------------------------------ one file, changed by both

NINE = b"".join(b"line %d\n" % number for number in range(9))
A, U = b"agent\n", b"user\n"
EDITED = NINE.replace(b"line 1\n", A)


def crlf(text: bytes) -> bytes:
    return text.replace(b"\n", b"\r\n")


def set_file(root: Path, content: bytes | None) -> None:
    (root / "f").unlink(missing_ok=True)
    if content is not None:
        (root / "f").write_bytes(content)


def get_file(root: Path) -> bytes | None:
    return (root / "f").read_bytes() if (root / "f").exists() else None


async def change(root: Path, kept: Checkpoints, before: bytes | None, after: bytes | None) -> Span:
    """A change of the agent."""
    set_file(root, before)
    first = (await kept.take()).tree
    set_file(root, after)
    return Span(first, (await kept.take()).tree)


async def undo(kept: Checkpoints, *spans: Span, include: tuple[str, ...] = ()) -> RestorePlan:
    plan = await kept.plan(spans)
    goal = await kept.make_goal(plan, include)
    assert (await kept.apply(plan.current, goal.tree)).skipped == ()
    return plan


@pytest.mark.parametrize(
    ("before", "agents", "users", "after"),
    [
        (NINE, EDITED, U + EDITED, U + NINE),
        (NINE, EDITED, EDITED + U, NINE + U),
        (NINE, A + NINE, A + NINE.replace(b"line 8\n", U), NINE.replace(b"line 8\n", U)),
        (NINE, NINE[7:], NINE[7:].replace(b"line 8\n", b""), NINE.replace(b"line 8\n", b"")),
        (NINE, EDITED, EDITED.rstrip(b"\n"), NINE.rstrip(b"\n")),
        (crlf(NINE), crlf(EDITED), crlf(EDITED + U), crlf(NINE + U)),
        (NINE, EDITED, NINE, NINE),
        (None, A, None, None),
    ],
)
async def test_undo_keeps_the_lines_that_the_user_changed_since(
    root: Path,
    kept: Checkpoints,
    before: bytes | None,
    agents: bytes,
    users: bytes | None,
    after: bytes | None,
) -> None:
    span = await change(root, kept, before, agents)
    set_file(root, users)
    plan = await undo(kept, span)
    assert get_file(root) == after
    merged = [RestoreChange("f", "changed", "agent", is_merged=True)]
    assert list(plan.changes) == (merged if users not in (before, None) else [])


@pytest.mark.parametrize(
    ("before", "agents", "users"),
    [
        (NINE, EDITED, NINE.replace(b"line 1\n", U)),  # the same line
        (NINE, EDITED, EDITED.replace(b"line 2\n", U)),  # the next one
        (None, A, A + U),  # the agent made the file
        (NINE, EDITED, None),  # the user deleted it
        (NINE, None, U),  # the user made it again
        (b"\0" + NINE, b"\0" + EDITED, b"\0" + EDITED + U),  # binary
    ],
)
async def test_a_file_of_which_both_changed_the_same_lines_is_left_alone_unless_it_is_included(
    root: Path, kept: Checkpoints, before: bytes | None, agents: bytes | None, users: bytes | None
) -> None:
    span = await change(root, kept, before, agents)
    set_file(root, users)
    plan = await undo(kept, span)
    assert ([one.author for one in plan.changes], get_file(root)) == (["both"], users)
    plan = await undo(kept, span, include=("f",))
    assert get_file(root) == before
    [stored] = await kept.find_file([plan.current], "f")
    assert (await kept.read_content(stored) if stored else None) == users


async def test_undo_of_two_changes_keeps_what_the_user_wrote_between_them(
    root: Path, kept: Checkpoints
) -> None:
    first = await change(root, kept, NINE, EDITED)
    second = await change(root, kept, EDITED + U, A + EDITED + U)
    await undo(kept, first, second)
    assert get_file(root) == NINE + U


async def test_permissions_that_the_user_changed_since_are_kept(
    root: Path, kept: Checkpoints
) -> None:
    span = await change(root, kept, NINE, EDITED)
    (root / "f").chmod(0o755)
    await undo(kept, span)
    assert (get_file(root), (root / "f").stat().st_mode & 0o777) == (NINE, 0o755)


async def test_permissions_that_the_agent_changed_go_back_and_the_users_lines_stay(
    root: Path, kept: Checkpoints
) -> None:
    set_file(root, NINE)
    (root / "f").chmod(0o640)
    before = (await kept.take()).tree
    (root / "f").chmod(0o755)
    span = Span(before, (await kept.take()).tree)
    (root / "f").write_bytes(NINE + U)
    await undo(kept, span)
    assert (get_file(root), (root / "f").stat().st_mode & 0o777) == (NINE + U, 0o640)


async def test_a_symlink_that_the_user_changed_since_is_left_alone(
    root: Path, kept: Checkpoints
) -> None:
    (root / "f").symlink_to("one")
    before = (await kept.take()).tree
    (root / "f").unlink()
    (root / "f").symlink_to("two")
    span = Span(before, (await kept.take()).tree)
    (root / "f").unlink()
    (root / "f").symlink_to("three")
    plan = await undo(kept, span)
    assert ([one.author for one in plan.changes], (root / "f").readlink()) == (
        ["both"],
        Path("three"),
    )


async def test_a_file_that_the_agent_renamed_comes_back_and_the_edited_one_is_left_alone(
    root: Path, kept: Checkpoints
) -> None:
    set_file(root, NINE)
    before = (await kept.take()).tree
    (root / "f").rename(root / "g")
    span = Span(before, (await kept.take()).tree)
    (root / "g").write_bytes(NINE + U)
    plan = await undo(kept, span)
    assert {one.path: one.author for one in plan.changes} == {"f": "agent", "g": "both"}
    assert (get_file(root), (root / "g").read_bytes()) == (NINE, NINE + U)


async def test_files_of_a_repository_in_the_folder_are_restored_and_its_git_folder_is_not(
    root: Path, kept: Checkpoints
) -> None:
    (root / "sub/.git").mkdir(parents=True)
    (root / "sub/.git/HEAD").write_text("one")
    (root / "sub/code").write_text("one")
    before = (await kept.take()).tree
    (root / "sub/.git/HEAD").write_text("two")
    (root / "sub/code").write_text("two")
    await undo(kept, Span(before, (await kept.take()).tree))
    assert (look(root)["sub/code"], look(root)["sub/.git/HEAD"]) == ("one", "two")


async def test_files_without_stored_content_are_named_and_left_alone(
    root: Path, tmp_path: Path
) -> None:
    small = Checkpoints(root, tmp_path / "small", max_file_bytes=100)
    for name, text in (("large", "x" * 200), ("grows", "x"), (".gitignore", "log\n"), ("log", "1")):
        (root / name).write_text(text)
    before = (await small.take()).tree
    for name, text in (("large", "small"), ("grows", "x" * 200), ("log", "2"), ("new", "x" * 200)):
        (root / name).write_text(text)
    plan = await small.plan([Span(before, (await small.take()).tree)])
    small.close()
    assert (plan.changes, [one.path for one in plan.skipped]) == ((), ["grows", "large", "new"])


def test_a_text_that_is_too_long_to_be_compared_is_not_merged() -> None:
    base = b"".join(b"%d\n" % number for number in range(6000))
    other = base.replace(b"\n", b"!\n")
    assert merge_lines(base, other, base.replace(b"7\n", b"7?\n")) is None
