from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.builtin.helpers import failed, hands, plain
from tests.work import count_work
from treadle import Agent
from treadle.core.contracts.policy import AllowAll
from treadle.core.transcript.entries import Intent
from treadle.core.transcript.items import ToolResultItem
from treadle.core.transcript.state import fold_entries
from treadle.models import Say, Scripted
from treadle.testing.stores import MemoryStore
from treadle.tools.builtin import builtin_tools
from treadle.tools.builtin.file_text import decode_text, find_occurrences, replace_occurrences
from treadle.tools.builtin.files import file_changes
from treadle.workspace.local import LocalWorkspace

CODE = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


# --- write -------------------------------------------------------------------------------


async def test_a_new_file_is_written_with_its_folders(folder: Path) -> None:
    async with hands(folder) as agent:
        item = await agent.one("write", file_path="a/b/c.txt", content="one\ntwo\n")
    assert plain(item) == "Created a/b/c.txt with 2 lines."
    assert item.display.startswith("--- /dev/null\n+++ b/a/b/c.txt\n")
    assert (folder / "a/b/c.txt").read_text() == "one\ntwo\n"


async def test_a_file_that_was_not_read_whole_is_not_overwritten(folder: Path) -> None:
    (folder / "a.py").write_text(CODE)
    new = {"file_path": "a.py", "content": "x = 1\n"}
    async with hands(folder) as agent:
        unread = await agent.do(("write", new))
        part = await agent.do(("read", {"file_path": "a.py", "limit": 2}), ("write", new))
        halves = await agent.do(
            ("read", {"file_path": "a.py", "limit": 3}),
            ("read", {"file_path": "a.py", "offset": 4}),
            ("write", new),
            ("write", {**new, "content": "x = 2\n"}),
        )
    assert "was not read" in failed(unread[0])
    assert "only a part of a.py" in failed(part[1])
    assert plain(halves[2]) == plain(halves[3]) == "Wrote a.py, now 1 line."
    assert (folder / "a.py").read_text() == "x = 2\n"


async def test_half_an_emoji_is_refused_by_every_tool_that_creates_a_file(folder: Path) -> None:
    half = "smile \ud83d"
    patch = f"*** Begin Patch\n*** Add File: a.txt\n+{half}\n*** End Patch\n"
    async with hands(folder) as agent:
        written: list[Any] = [
            ("write", json.dumps({"file_path": "a.txt", "content": half})),
            ("edit", json.dumps({"file_path": "a.txt", "old_string": "", "new_string": half})),
            ("apply_patch", json.dumps({"patch": patch})),
        ]
        items = await agent.do(*written)
    assert all("half a surrogate pair" in failed(item) for item in items)
    assert not (folder / "a.txt").exists()


@pytest.mark.parametrize("reads", [[], [("read", {"file_path": "a.py", "limit": 5})]])
@pytest.mark.parametrize("tool", ["edit", "apply_patch"])
async def test_a_file_that_was_edited_is_not_overwritten_unless_it_was_read_whole(
    folder: Path, reads: list[tuple[str, dict[str, Any]]], tool: str
) -> None:
    lines = [f"line {number}\n" for number in range(5_000)]
    (folder / "a.py").write_text("".join(lines))
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-line 2\n+two\n*** End Patch"
    edit = {"file_path": "a.py", "old_string": "line 2\n", "new_string": "two\n"}
    change = ("edit", edit) if tool == "edit" else ("apply_patch", {"patch": patch})
    async with hands(folder) as agent:
        *_, edited, written = await agent.do(
            *reads, change, ("write", {"file_path": "a.py", "content": "x\n"})
        )
    assert not edited.is_error
    assert "only a part of a.py was read" in failed(written)
    assert (folder / "a.py").read_text() == "".join([*lines[:2], "two\n", *lines[3:]])


async def test_a_file_that_was_read_whole_and_edited_may_be_overwritten(folder: Path) -> None:
    (folder / "a.py").write_text(CODE)
    async with hands(folder) as agent:
        *_, written = await agent.do(
            ("read", {"file_path": "a.py"}),
            ("edit", {"file_path": "a.py", "old_string": "one", "new_string": "three"}),
            ("write", {"file_path": "a.py", "content": "x\n"}),
        )
    assert plain(written) == "Wrote a.py, now 1 line."


async def test_mode_line_ends_and_mark_stay(folder: Path) -> None:
    path = folder / "run.cmd"
    path.write_bytes(b"\xef\xbb\xbfecho one\r\necho two\r\n")
    path.chmod(0o750)
    async with hands(folder) as agent:
        await agent.do(
            ("read", {"file_path": "run.cmd"}),
            (
                "edit",
                {"file_path": "run.cmd", "old_string": "one\necho", "new_string": "1\necho\n"},
            ),
            ("write", {"file_path": "run.cmd", "content": "echo three\n"}),
        )
    assert path.read_bytes() == b"\xef\xbb\xbfecho three\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750


# --- edit --------------------------------------------------------------------------------


async def test_an_edit_answers_with_the_lines_and_shows_a_diff(folder: Path) -> None:
    (folder / "a.py").write_text(CODE)
    async with hands(folder) as agent:
        item = await agent.one(
            "edit", file_path="a.py", old_string="return 1", new_string="return 10"
        )
    assert plain(item) == ("Edited a.py. It now reads:\n1\tdef one():\n2\t    return 10\n3\t\n4\t")
    assert "-    return 1\n+    return 10" in item.display


async def test_several_edits_are_all_made_or_none(folder: Path) -> None:
    (folder / "a.py").write_text(CODE)
    good = {"old_string": "return 1", "new_string": "return 10"}
    bad = {"old_string": "return 3", "new_string": "return 30"}
    async with hands(folder) as agent:
        both = await agent.one("edit", file_path="a.py", edits=[good, bad])
        assert (folder / "a.py").read_text() == CODE
        assert "edit 2 of 2: old_string was not found" in failed(both)
        every = {"old_string": "return", "new_string": "yield", "replace_all": True}
        plain(await agent.one("edit", file_path="a.py", edits=[good, every]))
    assert (folder / "a.py").read_text() == CODE.replace("return", "yield").replace("1", "10")


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"old_string": "return", "new_string": "yield"}, "is in a.py 2 times, in lines 2, 6"),
        ({"old_string": "  return 1\n", "new_string": "x"}, None),
        ({"old_string": "   pass\n", "new_string": "x"}, "read the file again"),
        ({"old_string": "def one()\n    return 1", "new_string": "x"}, "the file:   def one():"),
        ({"old_string": "2\t    return 9", "new_string": "x"}, "leave out what `read` puts"),
        ({"old_string": "utterly elsewhere", "new_string": "x"}, "read the file again"),
        ({"old_string": "return 5", "new_string": "def two():\n    return 2"}, "is there already"),
        ({"old_string": "", "new_string": "x"}, "name the text to replace"),
        ({"old_string": "same", "new_string": "same"}, "the same"),
        ({"old_string": "x"}, "new_string is missing"),
        ({}, "nothing to edit"),
        ({"edits": []}, "nothing to edit"),
    ],
)
async def test_an_edit_that_cannot_be_made_says_why(
    folder: Path, edit: dict[str, Any], words: str | None
) -> None:
    (folder / "a.py").write_text(CODE)
    async with hands(folder) as agent:
        item = await agent.one("edit", file_path="a.py", **edit)
    if words is None:
        assert plain(item)
        return
    assert words in failed(item)
    assert (folder / "a.py").read_text() == CODE


async def test_an_edit_of_nothing_makes_a_file_that_is_not_there(folder: Path) -> None:
    async with hands(folder) as agent:
        new = await agent.one("edit", file_path="n.py", old_string="", new_string="x\n")
    assert plain(new) == "Created n.py."
    assert (folder / "n.py").read_text() == "x\n"


async def test_other_encodings_are_kept_and_what_they_cannot_say_is_refused(folder: Path) -> None:
    (folder / "a.txt").write_bytes("straße\n".encode("cp1252"))
    async with hands(folder) as agent:
        good, bad = await agent.do(
            ("edit", {"file_path": "a.txt", "old_string": "straße", "new_string": "größe"}),
            ("edit", {"file_path": "a.txt", "old_string": "größe", "new_string": "размер"}),
        )
    assert plain(good)
    assert "has no 'р'" in failed(bad)
    assert (folder / "a.txt").read_bytes() == "größe\n".encode("cp1252")


@given(
    st.text("ab \n\r", max_size=40),
    st.text("ab\n", min_size=1, max_size=4),
    st.text("c\n", max_size=3),
)
def test_a_replacement_touches_nothing_else(text: str, old: str, new: str) -> None:
    places = find_occurrences(text, old, "\n")
    result = replace_occurrences(text, places, new)
    pieces = []
    end = 0
    for place in places:
        assert text[place.start : place.end].replace("\r\n", "\n") == old
        pieces.append(text[end : place.start])
        end = place.end
    for piece in (*pieces, text[end:]):
        assert piece in result
    assert not places or "c" in result or "c" not in new


@given(st.text("ab\n\r", max_size=20), st.text("ab\n\r", min_size=1, max_size=4))
def test_what_stands_in_a_text_is_found_whatever_its_line_ends(text: str, old: str) -> None:
    same = old.replace("\r\n", "\n") in text.replace("\r\n", "\n")
    assert bool(find_occurrences(text, old, "\n")) == (same or old in text)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
async def test_many_equal_lines_cost_no_more_than_as_many_others(
    folder: Path, line_end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_changes, "THREAD_THRESHOLD_CHARS", 10**9)  # counted is this thread
    line, count = "a" * 50, 12_000
    (folder / "big").write_bytes(f"{line}{line_end}".encode() * count)
    many = [line] * 600
    old = "\n".join([*many, "b"])
    calls = [
        ("edit", {"file_path": "big", "old_string": old, "new_string": "c"}),
        ("apply_patch", patch("*** Update File: big", *(f" {line}" for line in many), "-b")),
        ("edit", {"file_path": "big", "old_string": "\n".join(many), "new_string": "c"}),
    ]
    async with hands(folder) as agent:
        with count_work() as work:
            missed, unfit, often = await agent.do(*calls)
    assert "The nearest lines are these; the first difference:\n  old_string: b" in failed(missed)
    assert "The nearest lines are these:\n1\t" in failed(unfit)
    assert "is in big 20 times, in lines 1, 601, 1201," in failed(often)
    assert work.calls < 80 * count
    assert work.scanned < 120 * count * len(line)


@given(st.binary(max_size=200))
def test_what_is_taken_for_text_is_written_back_as_it_was(data: bytes) -> None:
    text = decode_text(data)
    if text is not None:
        assert text.encode(text.text) == data


async def test_an_old_text_with_the_numbers_of_read_is_found_if_it_is_there_once(folder: Path):
    (folder / "a.py").write_text("one\n  two\nthree\n")
    edit = {"old_string": "2\t  two\n3\tthree", "new_string": "2\t  TWO\n3\tthree"}
    async with hands(folder) as agent:
        _, item = await agent.do(
            ("read", {"file_path": "a.py"}), ("edit", {"file_path": "a.py", **edit})
        )
    assert plain(item).startswith("Edited ")
    assert "[corrected: old_string began with line numbers, which are left out]" in item.model_text
    assert (folder / "a.py").read_text() == "one\n  TWO\nthree\n"


# --- conflicts ---------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["edit", "write", "apply_patch"])
async def test_fault_71_a_file_changed_since_it_was_read_is_not_touched(
    folder: Path, tool: str
) -> None:
    (folder / "a.py").write_text(CODE)
    change = {
        "edit": {"file_path": "a.py", "old_string": "return 1", "new_string": "return 10"},
        "write": {"file_path": "a.py", "content": "mine\n"},
        "apply_patch": {
            "patch": "*** Begin Patch\n*** Update File: a.py\n@@\n-    return 1\n+    return 10\n"
            "*** End Patch"
        },
    }[tool]
    async with hands(folder) as agent:
        _, _, refused, again, done = await agent.do(
            ("read", {"file_path": "a.py"}),
            ("bash", {"command": "echo '# by the user' >> a.py"}),
            (tool, change),
            ("read", {"file_path": "a.py"}),
            (tool, change),
        )
    assert "changed since it was read" in failed(refused)
    assert "# by the user" in plain(again)
    assert plain(done)


async def test_fault_72_of_two_agents_at_one_file_the_second_sees_the_conflict(
    folder: Path,
) -> None:
    path = folder / "a.txt"
    path.write_text("start\n")
    async with hands(folder) as agent:
        work = [
            agent.do(
                ("read", {"file_path": "a.txt"}),
                ("edit", {"file_path": "a.txt", "old_string": "start", "new_string": f"start {n}"}),
            )
            for n in range(8)
        ]
        ended = await asyncio.gather(*work)
    made = [n for n, items in enumerate(ended) if not items[1].is_error]
    assert len(made) >= 1
    for items in ended:
        assert not items[1].is_error or "changed since it was read" in items[1].text
    assert path.read_text().count("start") == 1
    assert len(made) == len(path.read_text().split()) - 1, "no edit was lost"


async def test_edits_of_one_reply_follow_each_other(folder: Path) -> None:
    (folder / "a.txt").write_text("0\n")
    edits = [
        ("edit", {"file_path": name, "old_string": f"{n}\n", "new_string": f"{n}\n{n + 1}\n"})
        for n, name in enumerate(["a.txt", "./a.txt", str(folder / "a.txt")])
    ]
    async with hands(folder) as agent:
        for item in await agent.do(edits):
            plain(item)
    assert (folder / "a.txt").read_text() == "0\n1\n2\n3\n"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anything")
async def test_fault_74_a_file_without_permission_is_an_error(folder: Path) -> None:
    (folder / "a.txt").write_text("x")
    (folder / "a.txt").chmod(0)
    async with hands(folder) as agent:
        failed(await agent.one("edit", file_path="a.txt", old_string="x", new_string="y"))


async def test_fault_74_a_read_only_file_stays_as_it_is(folder: Path) -> None:
    (folder / "a.txt").write_text("x")
    (folder / "a.txt").chmod(0o444)
    async with hands(folder) as agent:
        item = await agent.one("edit", file_path="a.txt", old_string="x", new_string="y")
        long = await agent.one("write", file_path="b" * 300, content="")
    assert "read-only" in failed(item)
    assert "too long" in failed(long)
    assert (folder / "a.txt").read_text() == "x"


async def test_a_path_out_of_the_workspace_is_refused(folder: Path, own_place: Path) -> None:
    (folder / "link").symlink_to(own_place)
    async with hands(folder) as agent:
        for path in ("../out.txt", "link/out.txt", str(own_place / "out.txt")):
            assert "outside" in failed(await agent.one("write", file_path=path, content="x"))
    assert not (own_place / "out.txt").exists()


# --- apply_patch -------------------------------------------------------------------------


def patch(*lines: str) -> dict[str, str]:
    return {"patch": "\n".join(["*** Begin Patch", *lines, "*** End Patch"])}


async def test_a_patch_adds_updates_moves_and_deletes(folder: Path) -> None:
    (folder / "a.py").write_text(CODE)
    (folder / "b.py").write_text("b = 1\nb = 2\n")
    (folder / "b.py").chmod(0o755)
    (folder / "c.py").write_text("c\n")
    async with hands(folder) as agent:
        item = await agent.one(
            "apply_patch",
            **patch(
                "*** Add File: new/n.py",
                "+first",
                "+",
                "+third",
                "*** Update File: a.py",
                "@@ def two():",
                "-    return 2",
                "+    return 20",
                "*** Update File: b.py",
                "*** Move to: moved.py",
                "@@",
                " b = 1",
                "-b = 2",
                "+b = 3",
                "*** End of File",
                "*** Delete File: c.py",
            ),
        )
    assert plain(item) == "Done. Changed files:\nA new/n.py\nM a.py\nA moved.py\nD b.py\nD c.py"
    assert (folder / "new/n.py").read_text() == "first\n\nthird\n"
    assert (folder / "a.py").read_text() == CODE.replace("return 2", "return 20")
    assert (folder / "moved.py").read_text() == "b = 1\nb = 3\n"
    assert stat.S_IMODE((folder / "moved.py").stat().st_mode) == 0o755
    assert not (folder / "b.py").exists()
    assert not (folder / "c.py").exists()


async def test_context_is_matched_loosely_and_kept_as_it_stands(folder: Path) -> None:
    (folder / "a.txt").write_bytes("  say “hi”  \r\nold\r\nend\r\n".encode())
    async with hands(folder) as agent:
        item = await agent.one(
            "apply_patch",
            **patch("*** Update File: a.txt", "@@", ' say "hi"', "-old", "+new", " end"),
        )
    assert plain(item)
    assert (folder / "a.txt").read_bytes() == "  say “hi”  \r\nnew\r\nend\r\n".encode()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["*** Update File: a.py", "@@", "-    return 9", "+x"], "The nearest lines are these"),
        (["*** Update File: a.py", "@@ class X", "-    return 1", "+x"], "no line `class X`"),
        (["*** Update File: no.py", "@@", "-a", "+b"], "no.py does not exist"),
        (["*** Add File: a.py", "+x"], "exists already"),
        (["*** Update File: a.py"], "has no changes"),
        (["*** Update File: a.py", "?"], "line 5 of the patch is `?`"),
        ([" *** Delete File: a.py"], "expected lines that begin with `+`"),
        ([], "names no file"),
        (["*** Update File: a.py", "*** Move to: b.py"], "b.py exists already"),
        (["*** Delete File: a.py", "*** Delete File: a.py"], "conflicting parts"),
    ],
)
async def test_a_patch_that_does_not_fit_changes_nothing(
    folder: Path, lines: list[str], words: str
) -> None:
    (folder / "a.py").write_text(CODE)
    (folder / "b.py").write_text("b\n")
    async with hands(folder) as agent:
        item = await agent.one(
            "apply_patch", **patch("*** Add File: first.py", "+x", *lines) if lines else patch()
        )
    assert words in failed(item)
    assert sorted(os.listdir(folder)) == ["a.py", "b.py"]  # noqa: PTH208
    assert (folder / "a.py").read_text() == CODE


async def test_a_file_that_one_patch_adds_or_moves_and_moves_again_has_only_its_last_name(
    folder: Path,
) -> None:
    (folder / "old").write_text("old\n")
    patch = """*** Begin Patch
*** Add File: a
+one
*** Update File: a
*** Move to: b
@@
-one
+two
*** Update File: old
*** Move to: c
*** Update File: c
*** Move to: d
*** End Patch"""
    async with hands(folder) as agent:
        item = await agent.one("apply_patch", patch=patch)
    assert plain(item) == "Done. Changed files:\nA b\nD old\nA d"
    assert contents(folder) == {"b": "two\n", "d": "old\n"}


async def test_a_patch_that_moves_a_file_over_another_of_its_files_changes_nothing(
    folder: Path,
) -> None:
    (folder / "a").write_text("a\n")
    patch = (
        "*** Begin Patch\n*** Add File: b\n+b\n*** Update File: a\n*** Move to: b\n*** End Patch"
    )
    async with hands(folder) as agent:
        assert "conflicting parts for b" in failed(await agent.one("apply_patch", patch=patch))
    assert contents(folder) == {"a": "a\n"}


@pytest.mark.parametrize("tool", ["write", "edit", "apply_patch"])
async def test_half_an_emoji_in_a_new_file_is_refused_with_a_reason(
    folder: Path, tool: str
) -> None:
    half = "x \ud83d y"
    patch = f"*** Begin Patch\n*** Add File: a.txt\n+{half}\n*** End Patch"
    arguments = {
        "write": {"file_path": "a.txt", "content": half},
        "edit": {"file_path": "a.txt", "old_string": "", "new_string": half},
        "apply_patch": {"patch": patch},
    }
    async with hands(folder) as agent:
        call: Any = (tool, json.dumps(arguments[tool]))
        [item] = await agent.do(call)
    assert "half a surrogate pair (half an emoji) at character 2" in failed(item)
    assert contents(folder) == {}


async def test_a_patch_that_was_cut_off_is_not_applied(folder: Path) -> None:
    async with hands(folder) as agent:
        item = await agent.one("apply_patch", patch="*** Begin Patch\n*** Add File: a\n+half")
    assert "cut off" in failed(item)
    assert not (folder / "a").exists()


async def test_when_one_file_cannot_be_written_the_others_are_taken_back(folder: Path) -> None:
    (folder / "a.py").write_text("a\n")
    (folder / "z.py").write_text("z\n")
    (folder / "z.py").chmod(0o444)
    async with hands(folder) as agent:
        item = await agent.one(
            "apply_patch",
            **patch(
                "*** Update File: a.py", "@@", "-a", "+b", "*** Add File: n.py", "+n",
                "*** Update File: z.py", "@@", "-z", "+y",
            ),
        )  # fmt: skip
    assert "read-only" in failed(item)
    assert (folder / "a.py").read_text() == "a\n"
    assert not (folder / "n.py").exists()


# --- after a crash -----------------------------------------------------------------------


@pytest.mark.parametrize("was_done", [True, False])
async def test_an_edit_in_doubt_is_concluded_from_its_evidence(
    folder: Path, was_done: bool
) -> None:
    """The process dies after the intent, before the result; another one resumes."""
    (folder / "sub").mkdir()
    path = folder / "sub/a.py"
    path.write_text(CODE)
    script: list[Any] = [
        Say(calls=[("bash", {"command": "cd sub"})]),
        Say(calls=[("read", {"file_path": "a.py"})]),
        Say(calls=[("write", {"file_path": "a.py", "content": "new\n"})]),
        "done",
    ]
    workspace = await LocalWorkspace.open(folder)
    store = MemoryStore()
    try:
        agent = Agent(Scripted(script), [builtin_tools(workspace)], policy=AllowAll())
        await agent.run("go", session=store)
        cut = next(
            n for n, e in enumerate(store.durable) if isinstance(e, Intent) and e.tool == "write"
        )
        if not was_done:
            path.write_text(CODE)
        view = fold_entries(store.durable[: cut + 1])
        again = Agent(Scripted(["done"]), [builtin_tools(workspace)], policy=AllowAll())
        driver = again.start(state=view, store=MemoryStore())
        result = await again._drive(driver, again._ask_approver)
        last = [item for item in driver.transcript if isinstance(item, ToolResultItem)][-1]
        await driver.aclose()
    finally:
        await workspace.aclose()
    assert result.text == "done"
    assert path.read_text() == "new\n"
    assert last.text.startswith("Done before an interruption" if was_done else "Wrote a.py")
