"""A change of a log is detected; the evidence of a session is exported and signed."""

# ruff: noqa: ASYNC221, ASYNC230, ASYNC240 (files and ssh-keygen are how a test and the program meet)
from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import zlib
from pathlib import Path

from tests.apps.program import run
from tests.work import Work, count_work
from treadle.agents.agent import Agent
from treadle.core.transcript.entries import NoticeShown, TurnBegan
from treadle.models.scripted import Say, Scripted
from treadle.sessions import Journal, Library, fork, resume
from treadle.sessions.audit import verify_session
from treadle.sessions.log.records import encode_record
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer
from treadle.testing.tools import RecordingTool

OLD = Path(__file__).parents[1] / "sessions/formats/format-1"
LAST = FakeReply("That is all.")


def change(path: Path, old: bytes, new: bytes) -> None:
    """A change that keeps the checksum of the line correct."""
    lines = path.read_bytes().splitlines(keepends=True)
    found = [at for at, line in enumerate(lines) if old in line]
    assert found
    for at in found:
        rest = lines[at].rstrip(b"\n")[15:].replace(old, new)
        lines[at] = b'{"c":"%08x"%b\n' % (zlib.crc32(rest), rest)
    path.write_bytes(b"".join(lines))


async def test_evidence_says_who_allowed_what_and_a_changed_log_is_found_out():
    Path("work.sh").write_text("echo x >> effects\n")
    calls = (FakeCall("bash", {"command": "sh work.sh"}),)
    denied = FakeReply(calls=(FakeCall("bash", {"command": "rm -rf /srv/data"}),))
    replies = [FakeReply(calls=calls), denied, LAST, LAST]
    rule = ("--allow", "Bash(sh work.sh)", "--sandbox", "off", "--output-format", "json")
    async with ProviderServer(replies) as server:
        ran = await run(server, "-p", "write it down", *rule)
        session = ran.lines[0]["session_id"]
        other = (await run(server, "-p", "more", *rule)).lines[0]["session_id"]
    assert Path("effects").read_text() == "x\n"
    key = str(Path("key").absolute())
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    whole = await run(None, "sessions", "verify", session)
    assert whole.code == 0
    assert f"{session}: intact: " in whole.out
    refused = await run(
        None, "sessions", "evidence", session, "--output", "pack.json", "--sign", "no-key"
    )
    assert (refused.code, refused.out, Path("pack.json").exists()) == (1, "", False), refused
    signed = await run(
        None, "sessions", "evidence", session, "--output", "pack.json", "--sign", key
    )
    assert signed.code == 0, signed
    pack = json.loads(Path("pack.json").read_text())
    [call] = [one for one in pack["calls"] if one["effect"]]
    assert (call["tool"], call["effect"], call["outcome"]) == ("bash", "irreversible", "done")
    assert "Bash(sh work.sh)" in call["rule"]
    assert pack["messages"] == ["write it down"]
    assert sum(one["calls"] for one in pack["costs"]) == 3
    assert sum(one["usage"]["cost"] for one in pack["costs"]) > 0

    allowed = Path("signers")
    allowed.write_text(f"auditor {Path('key.pub').read_text()}")
    words = ["-Y", "verify", "-f", "signers", "-I", "auditor", "-n", "treadle"]
    check = ["ssh-keygen", *words, "-s", "pack.json.sig"]
    with Path("pack.json").open("rb") as file:
        assert subprocess.run(check, stdin=file, check=False).returncode == 0

    page = await run(None, "sessions", "evidence", session, "--format", "html")
    assert "Bash(sh work.sh)" in page.out
    assert "<script" not in page.out
    same = await run(None, "sessions", "verify", session, "--evidence", "pack.json")
    assert same.code == 0
    wrong = await run(None, "sessions", "verify", other, "--evidence", "pack.json")
    assert (wrong.code, wrong.out.splitlines()[-1]) == (1, f"pack.json: about session {session}")
    journal = Library().find(session) / "journal.jsonl"
    change(journal, b"sh work.sh", b"sh other.sh")
    changed = await run(None, "sessions", "verify", session)
    assert changed.code == 1
    assert "broken: of the entries" in changed.out
    of_broken = await run(None, "sessions", "evidence", session)
    assert (of_broken.code, "the log is broken: " in of_broken.err) == (0, True), of_broken
    assert (
        "pack.json: not about this log"
        in (await run(None, "sessions", "verify", session, "--evidence", "pack.json")).out
    )


async def test_each_store_has_the_chain_and_names_what_was_changed(postgres_url: str):
    tool = RecordingTool("work", "x" * 100_000, effect="irreversible")
    replies = [
        Say(calls=[("work", {"n": 1})]),
        Say("done"),
        Say("again"),
        Say("more"),
        Say("forked"),
    ]
    for store in ("folder", "chats.db", postgres_url):
        agent = Agent(Scripted(replies), [tool], store=store)
        await agent.run("go", session="one")
        await agent.run("and again", session="one")  # another writer
        report = await agent.sessions.verify("one")
        assert (report.state, report.unsigned) == ("intact", 0), store
        assert report.entries == max(report.heads)
        async with agent.session("one") as session:
            await session.fork("two")
        await agent.run("a third", session="two")
        assert (await agent.sessions.verify("two")).state == "intact", store
    with contextlib.closing(sqlite3.connect("chats.db")) as database, database:
        database.execute("UPDATE entries SET time = time + 1 WHERE seq = 2")
    assert (await Agent(Scripted([]), store="chats.db").sessions.verify("one")).state == "broken"
    [blob] = [one for one in Path("folder/one/blobs").rglob("*") if one.is_file()]
    blob.unlink()
    report = await Agent(Scripted([]), store="folder").sessions.verify("one")
    assert report.problem.startswith("the content of entry ")


async def test_an_old_log_is_unsigned_and_signed_from_now_on(own_place: Path):
    place = own_place / "sessions/old"
    shutil.copytree(OLD, place)
    assert verify_session(place).state == "unsigned"
    resumed = resume(place)
    resumed.journal.append(NoticeShown("new"))
    await resumed.journal.aclose()
    report = verify_session(place)
    assert (report.state, report.problem) == ("intact", "")
    assert 0 < report.unsigned < report.entries


async def test_what_a_crash_left_of_a_write_is_unsigned_and_the_chain_goes_on(own_place: Path):
    journal = Journal.create(own_place / "p/s")
    journal.append(TurnBegan("turn-1"))
    await journal.aclose()
    path = own_place / "p/s/journal.jsonl"
    half = encode_record(NoticeShown("the first of two"), 2, 1, 1.0)
    path.write_bytes(path.read_bytes() + half + b'{"c":"12')  # the second one is torn
    resumed = resume(own_place / "p/s")
    resumed.journal.append(NoticeShown("after"))
    await resumed.journal.aclose()
    report = verify_session(own_place / "p/s")
    assert (report.state, report.unsigned, report.problem) == ("intact", 1, "")


async def test_a_fork_follows_its_parent_and_notices_when_that_is_cut(own_place: Path):
    library = Library(own_place / "sessions")
    parent = library.create(own_place)
    await Agent(Scripted([Say("one")])).run("first", session=parent)
    journal, _ = fork(library, parent.session_dir, folder=own_place)
    journal.append(NoticeShown("of the fork"))
    await journal.aclose()
    assert verify_session(journal.session_dir).problem == ""
    path = parent.session_dir / "journal.jsonl"
    change(path, b'"first"', b'"other"')
    assert "is a fork of" in verify_session(journal.session_dir).problem


async def test_each_entry_is_verified_once(own_place: Path):
    async def verify(count: int) -> Work:
        journal = Journal.create(own_place / f"p/{count}")
        for number in range(count):
            journal.append(NoticeShown("x" * 1_000 + str(number)))
            if number % 5 == 0:
                await journal.flush()
        await journal.aclose()
        with count_work() as work:
            assert verify_session(own_place / f"p/{count}").entries == count
        return work

    few, many = await verify(100), await verify(500)
    assert many.calls < 6 * few.calls
    assert many.scanned < 6 * few.scanned
