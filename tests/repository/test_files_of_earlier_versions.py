"""What version 0.1 wrote to disk opens, replays and resumes in this version.

The samples are in tests/data/written_by_0_1; its README says what each file is. The tests work on
copies: the samples name the home directory /home/user, a copy names its own.
"""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pty
import select
import termios
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.program import PROGRAM, Ran, environment, run, start
from treadle import Agent, Text, tool

# The only internal names in this file. All else goes through the command line and the files.
from treadle.apps.cli.main import run as run_in_process
from treadle.observe.jsonlines import JsonLines
from treadle.testing.provider import FakeCall, FakeReply, ProviderFault, ProviderServer

SAMPLES = Path(__file__).resolve().parents[1] / "data/written_by_0_1"
SESSIONS: dict[str, str] = json.loads((SAMPLES / "sessions.json").read_text())
SUSPENDED = [name for name in SESSIONS if "suspended" in name or name == "every kind of entry"]
INDEXES = ("index.jsonl", "children.jsonl", "spending.jsonl")
OLD_HOME = b"/home/user"

LAST = FakeReply("That is all.")
FREELY = ("--permission-mode", "bypass", "--sandbox", "off")
Command = Callable[..., Ran]


# ------------------------------------------------------------------ copies of the samples


def project_folder(project: bytes) -> bytes:
    """The name of the folder that holds the sessions of a project."""
    return b"project-" + hashlib.sha256(project).hexdigest()[:8].encode()


class Relocation:
    """Puts another home directory into sample files: into paths, checksums and the hash of the
    project's path."""

    def __init__(self, home: Path) -> None:
        new = os.fsencode(home)
        names = (project_folder(base + b"/project") for base in (OLD_HOME, new))
        self._pairs = [(OLD_HOME, new), (*names,)]

    def data(self, data: bytes) -> bytes:
        for old, new in self._pairs:
            data = data.replace(old, new)
        return data

    def path(self, path: bytes) -> Path:
        return Path(os.fsdecode(self.data(path)))

    def journal(self, data: bytes) -> bytes:
        return b"".join(map(self._line, data.splitlines(keepends=True)))

    def _line(self, line: bytes) -> bytes:
        """With its checksum: the CRC-32 of all that is behind it."""
        old = line.rstrip(b"\n")
        new = self.data(old)
        if old[6:14] == b"%08x" % zlib.crc32(old[15:]):  # else it was torn, and stays so
            new = new[:6] + b"%08x" % zlib.crc32(new[15:]) + new[14:]
        return new + line[len(old) :]


def update_sizes(index: Path) -> None:
    """An index is believed while a journal has the size and the time that it names."""
    rows = [json.loads(line) for line in index.read_text().splitlines()]
    for row in rows:
        mark = row.get("mark", row)
        place = row.get("place") or f"{row['project']}/{row['id']}"
        segment = "journal.jsonl" if mark["segment"] == 1 else f"journal-{mark['segment']}.jsonl"
        journal = index.parent / place / segment
        if journal.exists():
            status = journal.stat()
            mark["offset"] += status.st_size - mark["bytes"]
            mark.update(bytes=status.st_size, modified=status.st_mtime_ns)
    index.write_text("".join(json.dumps(row) + "\n" for row in rows))


def copy_home(sample: str, home: Path) -> None:
    """Copy a home that version 0.1 left behind."""
    relocation, source = Relocation(home), SAMPLES / sample
    for old in sorted(source.rglob("*")):
        new = home / relocation.path(os.fsencode(old.relative_to(source)))
        if old.is_symlink():
            new.symlink_to(relocation.path(os.fsencode(old.readlink())))
        elif old.is_dir():
            new.mkdir()
        elif old.name.startswith("journal"):
            new.write_bytes(relocation.journal(old.read_bytes()))
        else:
            new.write_bytes(relocation.data(old.read_bytes()))
    for index in home.glob(".local/share/treadle/sessions/*.jsonl"):
        update_sizes(index)


def sessions_folder() -> Path:
    return Path.home() / ".local/share/treadle/sessions"


@pytest.fixture
def with_sessions(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_home("sessions", Path.home())
    monkeypatch.chdir(Path.home() / "project")


@pytest.fixture
def with_settings(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_home("settings", Path.home())
    monkeypatch.chdir(Path.home() / "project")


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home").resolve()
    copy_home("sessions", home)
    return home


@pytest.fixture
def with_shared_sessions(
    shared_home: Path, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One copy for many tests: each may write to one session that no other test reads later."""
    monkeypatch.setenv("HOME", str(shared_home))
    monkeypatch.setenv("XDG_DATA_HOME", str(shared_home / ".local/share"))
    monkeypatch.chdir(shared_home / "project")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process, which is faster; only for commands that start no agent."""

    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run_in_process(list(arguments))
        return Ran(code, *capsys.readouterr())

    return call


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, list):
        for one in value:
            yield from texts_in(one)
    elif isinstance(value, dict):
        if isinstance(value.get("text"), str):
            yield value["text"]
        yield from texts_in(list(value.values()))


def shape_of(value: Any, path: str = "") -> set[str]:
    """The paths of all fields in JSON values. A path names the types of the objects on it."""
    if isinstance(value, list):
        return {one for element in value for one in shape_of(element, f"{path}[]")}
    if not isinstance(value, dict):
        return {path}
    kind = value.get("type") or value.get("hook_event_name") or ""
    return {one for key, field in value.items() for one in shape_of(field, f"{path}/{kind}.{key}")}


def entries_of(session: str) -> list[dict[str, Any]]:
    """The entries that a session wrote itself, by reading its files."""
    [place] = sessions_folder().glob(f"*/{session}")
    found: dict[int, dict[str, Any]] = {}
    for file in place.glob("journal*.jsonl"):
        for line in file.read_text().splitlines():
            if line.endswith("}") and "n" in (entry := json.loads(line)) and entry["n"] > 0:
                found[entry["n"]] = entry
    return [entry for entry in found.values() if entry["kind"] != "opened"]


# ------------------------------------------------------------------ sessions: read


def test_the_samples_have_every_kind_of_entry(with_shared_sessions: None):
    kinds = {entry["kind"] for session in SESSIONS.values() for entry in entries_of(session)}
    assert kinds == {
        *("item", "turn", "end", "usage", "notice", "checkpoint", "queued", "unqueued"),
        *("intent", "settled", "ruling", "compaction", "uncompact", "rewind"),
        *("quarantine", "parked"),
    }


def test_the_list_and_the_cost_are_the_same_with_the_old_indexes_and_without(
    with_sessions: None, command: Command
):
    def listed(rows: list[dict[str, Any]]) -> dict[str, Any]:
        names = ("turns", "title", "children")
        return {
            row["id"]: [row[name] for name in names]
            + [pytest.approx(row["cost"]), row["state"].rpartition("(")[2]]
            for row in rows
        }

    def sums(cost: dict[str, Any]) -> dict[str, Any]:
        rows = [cost["total"], *cost["by_model"], *cost["by_session"]]
        return {row.pop("key"): {name: pytest.approx(row[name]) for name in row} for row in rows}

    then = Ran(0, (SAMPLES / "outputs/sessions.jsonl").read_text(), "").lines
    spent = json.loads((SAMPLES / "outputs/cost.json").read_text())
    wanted, wanted_sums = listed(then), sums(spent)
    assert set(SESSIONS.values()) < set(wanted)  # and the child agents' sessions
    for name, inherited in (("fork", 2), ("fork of a fork", 1)):  # forks did not count these
        wanted[SESSIONS[name]][0] += inherited
    for _ in ("with the indexes", "without them"):
        assert listed(command("sessions", "list", "--all", "--json").lines) == wanted
        assert sums(json.loads(command("cost", "--since", "all", "--json").out)) == wanted_sums
        for name in INDEXES:
            (sessions_folder() / name).unlink()


@pytest.mark.parametrize("name", SESSIONS)
def test_every_session_is_shown_exported_and_replayed(
    name: str, with_shared_sessions: None, command: Command
):
    session = SESSIONS[name]
    entries = entries_of(session)
    items = [entry["item"] for entry in entries if entry["kind"] == "item"]
    said = [item for item in items if item["type"] in ("user", "assistant")]

    shown = command("sessions", "show", session)
    assert shown.code == 0
    assert [text for text in texts_in(said) if text.strip() not in shown.out] == []
    assert command("sessions", "export", session, "--format", "html").code == 0
    exported = json.loads(command("sessions", "export", session, "--format", "json").out)
    assert set(texts_in(items)) <= set(texts_in(exported))
    numbers = [entry["n"] for entry in exported["entries"]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers[-1] == max(entry["n"] for entry in entries)
    assert command("replay", session).code == 0


@pytest.mark.parametrize("name", ["child agent", "killed beside a child agent"])
def test_the_session_of_a_child_agent_is_shown_with_its_parent_and_alone(
    name: str, with_shared_sessions: None, command: Command
):
    [child] = sessions_folder().glob(f"*/{SESSIONS[name]}/children/*")
    assert child.name in command("sessions", "show", SESSIONS[name]).out
    alone = command("sessions", "show", child.name)
    assert alone.code == 0
    assert {"child agent": "The plan is to count."}.get(name, "Wait.") in alone.out


def test_a_message_that_is_kept_in_a_blob_is_exported_whole(
    with_shared_sessions: None, command: Command
):
    exported = command("sessions", "export", SESSIONS["long message"], "--format", "json")
    assert exported.out.count("a line of a long message") > 2_500


def test_an_export_of_that_version_has_the_same_texts_as_one_of_today(
    with_shared_sessions: None, command: Command
):
    session = SESSIONS["tools and approvals"]
    for kind, file in (("json", "export.json"), ("markdown", "export.md"), ("html", "export.html")):
        old = (SAMPLES / "outputs" / file).read_text()
        new = command("sessions", "export", session, "--format", kind).out
        for text in ("Write the second line as a digit.", "I need the plan.", "Now I change it."):
            assert text in old
            assert text in new
        if kind == "json":
            wanted = json.loads(Relocation(Path.home()).data(old.encode()))
            assert list(texts_in(json.loads(new))) == list(texts_in(wanted))


def test_a_session_is_forked_and_searched(with_sessions: None, command: Command):
    session = SESSIONS["tools and approvals"]
    before = {place.name for place in sessions_folder().glob("*/*")}
    assert command("sessions", "fork", session, "--before", "2").code == 0
    [fork] = {place.name for place in sessions_folder().glob("*/*")} - before
    assert command("replay", fork).code == 0
    parted = command("diff", session, fork)
    assert parted.code == 1
    assert "Add a fourth line." in parted.out
    assert session in command("sessions", "search", "the second line as a digit").out


def test_files_are_undone_redone_and_rewound_from_checkpoints(
    with_sessions: None, command: Command
):
    session, file = SESSIONS["undone and redone"], Path("undone.txt")
    assert command("sessions", "undo", session, "--yes").code == 0
    assert not file.exists()
    assert command("sessions", "redo", session).code == 0
    assert file.read_text() == "to be undone\n"
    assert command("sessions", "rewind", session, "1", "--yes").code == 0
    assert not file.exists()


def test_rules_are_tested_against_what_was_asked_then(with_shared_sessions: None, command: Command):
    assert command("permissions", "backtest", "Bash(rm:*)").code == 1  # a person denied it
    # A person allowed it; once nobody could be asked, and that is not a denial.
    assert command("permissions", "backtest", "Bash(touch:*)").code == 0


# ------------------------------------------------------------------ sessions: resumed

# The session, what the next request holds, and what it does not hold.
RESUMED = [
    ("plain turn", ["Hello. How can I help?", '"signature": "sig-'], []),
    ("compacted", ["nothing was removed", "Keep the notes.", "I remember."], ["A long answer"]),
    ("uncompacted", ["A long answer", "All of it."], ["nothing was removed"]),
    ("undone and redone", ["took back", "undone.txt"], []),
    ("background command", ["from behind", "It has ended."], []),
    ("rewound", ["Another way."], ['"Second."', "new.txt"]),
    ("fork of a fork", ["Write the second line", "I began earlier."], ["Who are you?"]),
    ("quarantined part", ["I see no picture."], ['"image"']),
    ("attachments", ['"image"', '"document"', '"redacted_thinking"'], []),
    ("torn and resumed", ["We went on."], []),
    ("turns that ended otherwise", ["It was denied."], []),
    ("long message", ["a line of a long message", "That was long."], []),
    ("two files", ["In the first file.", "In the second file."], []),
    ("taken over", ["From the first process.", "From the second."], []),
    ("openai responses", ["Count the lines.", '"encrypted_content": "enc-'], []),
    ("openai chat", ["Count the lines."], []),
]


async def resume(server: ProviderServer, *arguments: str) -> None:
    """Run to the end of the turn; the provider accepts every request."""
    openai = f"{server.url}/v1"
    ran = await run(server, *arguments, *FREELY, OPENAI_BASE_URL=openai, OPENAI_API_KEY="test")
    assert (ran.code, ran.out, server.violations) == (0, "That is all.\n", []), ran.err


@pytest.mark.parametrize(("name", "held", "left_out"), RESUMED, ids=[row[0] for row in RESUMED])
async def test_a_session_is_resumed_with_another_message(
    name: str, held: list[str], left_out: list[str], with_shared_sessions: None
):
    provider = {"openai responses": "openai/gpt-5", "openai chat": "openai-chat/gpt-5"}
    model = ("--model", provider.get(name, "anthropic/claude-sonnet-5-5"))
    async with ProviderServer([LAST]) as server:
        session = SESSIONS[name]
        await resume(server, "-p", "Go on.", "--resume", session, "--thinking", "low", *model)
    [request] = server.requests
    body = json.dumps(request.json)
    assert [text for text in [*held, "Go on."] if text not in body] == []
    assert [text for text in left_out if text in body] == []


async def test_a_session_is_resumed_in_the_working_directory_of_its_shell(with_sessions: None):
    where = FakeReply(calls=(FakeCall("bash", {"command": "cat here.txt"}),))
    async with ProviderServer([where, LAST]) as server:
        session = SESSIONS["tools and approvals"]
        await resume(server, "-p", "Where are you?", "--resume", session)
    assert results(server)[-1] == "here"


def results(server: ProviderServer) -> list[str]:
    """What the model was answered with last, call by call."""
    messages: Any = server.requests[-1].json["messages"]
    content = [part for part in messages[-1]["content"] if part["type"] == "tool_result"]
    return ["".join(texts_in(part)) or str(part["content"]) for part in content]


# ------------------------------------------------------------------ sessions: suspended, killed


def test_what_is_suspended_is_listed(with_shared_sessions: None, command: Command):
    listed = command("resume")
    assert listed.code == 0
    assert [name for name in SESSIONS if SESSIONS[name] in listed.out] == SUSPENDED


async def test_a_suspended_call_is_made_once_it_is_approved(with_sessions: None):
    [left_behind] = Path().glob(".treadle-tmp-*")
    async with ProviderServer([LAST]) as server:
        session = SESSIONS["suspended for an approval"]
        await resume(server, "resume", session, "--approve")
    assert Path("approved.txt").exists()
    assert not left_behind.exists()  # of a writer that was killed


async def test_a_suspended_question_is_answered(with_sessions: None):
    async with ProviderServer([LAST]) as server:
        session = SESSIONS["suspended for an answer"]
        await resume(server, "resume", session, "--answer", "MariaDB")
    assert Path("asked.txt").read_text() == "asked\n"
    assert "MariaDB" in results(server)[1]


async def test_an_answer_is_kept_while_another_call_waits_for_an_approval(
    with_sessions: None,
):
    async with ProviderServer([LAST]) as server:
        session = SESSIONS["answered and suspended again"]
        await resume(server, "resume", session, "--approve")
    assert Path("answered.txt").exists()
    assert "SQLite" in results(server)[0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("suspended for a rate limit", "Say something."),
        ("suspended for money", "Spend something."),
        ("suspended for a file", "Tell me when the file is there."),
        ("every kind of entry", "Wait for an hour."),
    ],
)
async def test_a_suspended_turn_is_resumed(name: str, said: str, with_sessions: None):
    async with ProviderServer([LAST]) as server:
        await resume(server, "resume", SESSIONS[name], "--max-cost", "50")
    [request] = server.requests
    messages: Any = request.json["messages"]
    assert said in json.dumps(messages[-1])


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("killed in a command", 1),
        ("killed beside a child agent", 2),
        ("killed behind a write", 1),
        ("queued message", 1),
    ],
)
async def test_a_session_killed_in_a_call_is_resumed_and_repeats_no_call(
    name: str, answers: int, with_sessions: None
):
    before = files()
    async with ProviderServer([LAST]) as server:
        await resume(server, "-p", "--resume", SESSIONS[name])
    assert len(results(server)) == answers
    assert files() == before
    waited = "And say good night." in json.dumps(server.requests[-1].json["messages"])
    assert waited == (name == "queued message")


def files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path().glob("*.txt")}


@pytest.mark.parametrize("name", ["killed in a reply", "torn"])
async def test_a_session_killed_between_calls_is_resumed(name: str, with_sessions: None):
    prompt = [] if name == "killed in a reply" else ["Go on."]
    async with ProviderServer([LAST]) as server:
        await resume(server, "-p", *prompt, "--resume", SESSIONS[name])
    messages: Any = server.requests[-1].json["messages"]
    assert {"user"} == {messages[0]["role"], messages[-1]["role"]}


# ------------------------------------------------------------------ settings


def test_every_setting_has_its_value_and_its_origin(with_settings: None, command: Command):
    relocation = Relocation(Path.home())
    old = json.loads(relocation.data((SAMPLES / "outputs/config.json").read_bytes()))
    new = json.loads(command("config", "--json").out)
    assert {name: new["settings"][name] for name in old["settings"]} == old["settings"]
    assert len(new["notes"]) == len(old["notes"])  # what a project's file may not change
    origins = {str(row["origin"]).rpartition(":")[0] for row in old["settings"].values()}
    assert origins == {f"{Path.home()}{place}/.treadle/config.toml" for place in ("", "/project")}


def test_every_rule_is_in_force_also_remembered_ones(with_settings: None, command: Command):
    listed = command("permissions")
    assert listed.code == 0
    relocation = Relocation(Path.home())
    old = relocation.data((SAMPLES / "outputs/permissions.txt").read_bytes())
    for row in old.decode().splitlines():
        decision, rest = row.split(maxsplit=1)
        rule, file = rest.partition("  ")[0], rest.rpartition(" ")[2]
        found = [line for line in listed.out.splitlines() if rule in line]
        assert [decision in line and file in line for line in found] == [True], rule
    for line, verdict in (
        ("npm test -- --watch", "allow"),
        ("touch linted.txt", "allow"),
        ("make all", "allow"),
        ("git push", "ask"),
        ("rm -rf x", "deny"),
        ("curl x", "deny"),
    ):
        explained = json.loads(command("permissions", "explain", line, "--json").out)
        assert explained["verdict"] == verdict, line


def test_approved_programs_stay_approved_until_one_changes(with_settings: None, command: Command):
    assert "guard.sh" not in command("trust").out
    Path(".treadle/guard.sh").write_text("something else\n")
    assert "guard.sh" in command("trust").out


async def test_hooks_run_and_get_the_fields_that_they_got_then(with_settings: None):
    calls = [
        (
            FakeCall("read", {"file_path": "plan.txt"}),
            FakeCall("bash", {"command": "touch denied.txt"}),
        ),
        (FakeCall("bash", {"command": "touch linted.txt"}),),
        (FakeCall("task", {"description": "look", "prompt": "Look."}),),
    ]
    async with ProviderServer([*(FakeReply(calls=some) for some in calls), LAST, LAST]) as server:
        ran = await run(
            server, "-p", "Do it.", "--sandbox", "off", "--max-cost", "50",
            "--max-tokens", "100000000", "--model", "anthropic/claude-sonnet-5-5",
            TREADLE_SERVER_WAIT="0.01",
        )  # fmt: skip
    assert ran.code == 7, ran.err  # one call was denied
    assert Path("linted.txt").exists()
    assert "touch linted.txt" in Path("guarded.jsonl").read_text()
    old = (SAMPLES / "outputs/hooks.jsonl").read_text().splitlines()
    seen = "".join(path.read_text() for path in Path.home().glob("seen-*.jsonl"))
    new = seen.replace("}{", "}\n{").splitlines()
    assert shape_of([json.loads(one) for one in old]) <= shape_of([json.loads(one) for one in new])
    request = json.dumps(server.requests[0].json)
    for text in ("The user likes short answers.", "Lines end with a newline.", "Cut a release."):
        assert text in request


async def test_commands_agents_and_skills_are_found(with_settings: None):
    async with ProviderServer([LAST]) as server:
        lines = "/agents\n/skills\n/fix this that\n"
        flags = ("--sandbox", "off", "--max-cost", "50", "--max-tokens", "100000000")
        model = ("--model", "anthropic/claude-sonnet-5-5")
        ran = await run(server, "--plain", *flags, *model, said=lines.encode())
    for name in ("reviewer", "counter", "release", "count", "That is all."):
        assert name in ran.out
    assert "Repair this, and then this that." in json.dumps(server.requests[0].json)


async def test_a_declined_folder_is_not_asked_about_again(with_settings: None):
    async with ProviderServer([LAST]) as server:
        flags = ("--model", "anthropic/claude-sonnet-5-5", "--sandbox", "off")
        process = await start(
            server, "--plain", *flags, stdin=asyncio.subprocess.PIPE, cwd=Path.home() / "other"
        )
        out, _ = await process.communicate(b"Say it.\n")  # no answer to a question about trust
    assert b"That is all." in out


async def test_the_prompt_history_is_read(with_settings: None):
    terminal, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "--model", "anthropic/claude-sonnet-5-5", "--sandbox", "off",
        stdin=theirs, stdout=theirs, stderr=theirs,
        env=environment(None, TERM="xterm", ANTHROPIC_API_KEY="test"),
    )  # fmt: skip
    os.close(theirs)
    try:
        await asyncio.to_thread(press_up_until, terminal, b"ake a file")
    finally:
        process.kill()
        await process.wait()
        os.close(terminal)


def press_up_until(terminal: int, text: bytes) -> None:
    """Keys that are pressed before the prompt has the focus are lost, so press again. `text` leaves
    out the first letter: under the cursor it is painted on its own."""
    seen = b""
    while text not in seen:
        os.write(terminal, b"\x1b[A")
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 65_536)


# ------------------------------------------------------------------ recordings and output


@tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def recorded(name: str, **options: Any) -> Agent:
    path = SAMPLES / "recordings" / name
    return Agent(f"recorded/{path}", [add], instructions="Add numbers.", **options)


async def test_a_recording_is_replayed_and_told_to_observers_in_the_same_fields():
    told: list[bytes] = []
    result = await recorded("wire.jsonl", observers=[JsonLines(told.append)]).run(
        "What is 2 and 3?"
    )
    assert result.text == "It is 5."
    old = (SAMPLES / "recordings/observer.jsonl").read_text().splitlines()
    assert shape_of([json.loads(one) for one in old]) <= shape_of([json.loads(one) for one in told])


async def test_a_recording_with_every_event_an_error_and_a_fallback_is_replayed():
    said = (Text("What is 2 and 3?"), Text("(a part that is refused)"))
    result = await recorded("every_event.jsonl").run(said)
    assert (result.text, result.usage.requests) == ("It is 5.", 2)


async def test_what_is_printed_for_programs_has_the_fields_that_it_had(with_sessions: None):
    """A field may be taken away only with a new version, which the first line names."""
    look = FakeCall("read", {"file_path": "plan.txt"})
    task = FakeCall("task", {"description": "look", "prompt": "Look."})
    replies = [
        FakeReply(calls=(FakeCall("bash", {"command": "echo", "run_in_background": True}),)),
        FakeReply(
            "I look.", thinking="First.", calls=(look, FakeCall("bash", {"command": "echo one"}))
        ),
        FakeReply(calls=(FakeCall("bash", {"command": "echo more >> plan.txt"}),)),
        FakeReply(calls=(task,)),
        FakeReply(calls=(look,)),
        FakeReply("The plan is to count."),
        FakeReply(calls=(FakeCall("bash", {"command": "touch denied.txt"}),)),
        LAST,
    ]
    async with ProviderServer(replies, faults=[ProviderFault("rate_limited", value="0")]) as server:
        ran = await run(
            server, "-p", "Do many things.", "--output-format", "stream-json",
            "--sandbox", "off", "--allow", "Bash(echo:*)", "--allow", "Edit(plan.txt)",
            "--thinking", "low",
        )  # fmt: skip
    assert ran.code == 7, ran.err
    old = Ran(0, (SAMPLES / "outputs/stream.jsonl").read_text(), "").lines
    old += Ran(0, (SAMPLES / "outputs/result.json").read_text(), "").lines
    if not any(line["type"] == "tool_progress" for line in ran.lines):
        old = [
            line for line in old if line["type"] != "tool_progress"
        ]  # the commands were too short
    if ran.lines[0]["version"] == old[0]["version"]:
        assert shape_of(old) - shape_of(ran.lines) == set()
