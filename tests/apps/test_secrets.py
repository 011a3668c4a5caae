"""Keys stay where they are: not in commands, sessions, events or logs, nor in what is shown."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import json
from pathlib import Path

from tests.apps.program import run
from treadle.apps.assembly.redaction import find_environment_secrets, redact, redact_for_display
from treadle.apps.console import exit_codes
from treadle.testing.provider import FakeCall, FakeReply, ProviderFault, ProviderServer

OURS = "sk-ant-api03-our-own-key-0123456789abcdef"
THEIRS = "ghp_" + "a1B2" * 9
LAST = FakeReply("That is all.")
FREELY = ("--permission-mode", "bypass", "--sandbox", "off")


def everything_kept() -> str:
    files = [path for path in (Path.home() / ".local").rglob("*") if path.is_file()]
    return "\n".join(path.read_text(errors="replace") for path in files)


async def test_keys_are_in_no_command_no_session_and_nothing_that_is_shown():
    Path("config.ini").write_text(f"key = {OURS}\ntoken = {THEIRS}\n")
    calls = (
        FakeCall(
            "bash", {"command": "env; cat /proc/$PPID/environ | tr '\\0' '\\n'; cat config.ini"}
        ),
        FakeCall("read", {"file_path": "config.ini"}),
    )
    async with ProviderServer([FakeReply(calls=calls), LAST]) as server:
        ran = await run(
            server, "-p", "go", "--verbose", "--output-format", "stream-json", *FREELY,
            OTHER_TOKEN="another-secret-value",
        )  # fmt: skip
    assert ran.code == 0
    assert THEIRS not in ran.out + ran.err
    assert "[redacted]" in ran.out
    assert "another-secret-value" not in ran.out + everything_kept()
    told = server.requests[1].body.decode()
    assert "ANTHROPIC_API_KEY" not in told
    assert THEIRS in told  # a token of the project's own is the model's to work with


async def test_our_own_key_reaches_neither_the_model_nor_those_who_watch():
    Path("config.ini").write_text(f"key = {OURS}\n")
    read = FakeReply(calls=(FakeCall("read", {"file_path": "config.ini"}),))
    bash = FakeReply(calls=(FakeCall("bash", {"command": "env; cat config.ini"}),))
    echo = FakeReply(f"The key is {OURS}.")
    async with ProviderServer([read, bash, echo]) as server:
        ran = await run(
            server, "-p", "go", "--output-format", "stream-json", *FREELY, SOME_API_KEY=OURS
        )
    bodies = "".join(request.body.decode() for request in server.requests)
    assert OURS not in bodies
    assert OURS not in ran.out + ran.err
    assert "key = [redacted]" in bodies
    assert ran.lines[-1]["text"] == "The key is [redacted]."


async def test_a_key_in_the_prompt_or_in_a_call_is_not_stored_or_exported():
    call = FakeReply(
        f"I use {OURS}.", calls=(FakeCall("bash", {"command": f"echo '{OURS}' | wc"}),)
    )
    async with ProviderServer([call, LAST, LAST]) as server:
        ran = await run(server, "-p", f"my key is {OURS}", *FREELY, SOME_API_KEY=OURS)
        again = await run(server, "-p", "--continue", f"again {OURS}", *FREELY, SOME_API_KEY=OURS)
    assert (ran.code, again.code) == (0, 0)
    assert OURS in server.requests[0].body.decode()  # what the user types is used as it is
    assert OURS not in everything_kept()
    assert everything_kept().count("my key is [redacted]") >= 1
    assert "echo '[redacted]' | wc" in everything_kept()
    assert server.violations == []


async def test_a_key_in_the_log_of_an_earlier_version_is_not_exported():
    async with ProviderServer([LAST]) as server:
        assert (await run(server, "-p", f"my key is {OURS}")).code == 0
    assert OURS in everything_kept()  # this process had no such variable
    [session] = [line["id"] for line in (await run(None, "sessions", "list", "--json")).lines]
    for kind in ("markdown", "html", "json"):
        exported = await run(
            None, "sessions", "export", session, "--format", kind, SOME_API_KEY=OURS
        )
        assert "my key is [redacted]" in exported.out
        assert OURS not in exported.out


async def test_an_error_that_quotes_the_key_does_not_show_it():
    quoting = ProviderFault("bad_request", times=-1, message=f"invalid key {OURS} or {THEIRS}")
    async with ProviderServer([LAST], faults=[quoting]) as server:
        ran = await run(
            server, "-p", "go", "--output-format", "stream-json", "--verbose", SOME_API_KEY=OURS
        )
    assert ran.code == exit_codes.ERROR
    assert "invalid key [redacted] or [redacted]" in ran.err
    assert OURS not in ran.out + ran.err + everything_kept()
    assert THEIRS not in ran.out + ran.err


async def test_a_projects_env_file_is_never_loaded():
    Path(".env").write_text("ANTHROPIC_API_KEY=from-the-file\nTREADLE_MAX_TURNS=0\n")
    await run(None, "trust")
    async with ProviderServer([FakeReply(calls=(FakeCall("ls", {}),)), LAST]) as server:
        ran = await run(server, "-p", "go")
    assert ran.code == 0
    assert all(dict(r.headers).get("x-api-key") == "test" for r in server.requests)
    assert "from-the-file" not in json.dumps([r.body.decode() for r in server.requests])


async def test_side_files_of_long_and_background_outputs_hold_no_key():
    Path("k").write_text(OURS)
    zeros = "head -c %d /dev/zero | tr '\\0' x"
    long = FakeCall("bash", {"command": f"{zeros % 15_980}; cat k; {zeros % 40_000}"})
    behind = FakeCall("bash", {"command": "cat k", "run_in_background": True})
    replies = [FakeReply(calls=(long,)), FakeReply(calls=(behind,)), LAST, LAST]
    async with ProviderServer(replies) as server:
        ran = await run(server, "-p", "go", *FREELY, SOME_API_KEY=OURS)
    assert ran.code == 0
    bodies = "".join(request.body.decode() for request in server.requests)
    kept = everything_kept()
    assert "[redacted]" in kept
    for part in (OURS[:12], OURS[-12:]):  # nor a piece of it, where the output was cut
        assert part not in bodies + kept


async def test_a_goals_command_tells_no_key():
    Path("k").write_text(OURS)
    async with ProviderServer([LAST, LAST, LAST]) as server:
        ran = await run(
            server, "-p", "go", "--until", "cat k; echo; false", "--goal-attempts", "2",
            "--verbose", "--output-format", "stream-json", *FREELY, SOME_PASS=OURS,
        )  # fmt: skip
    assert ran.code == exit_codes.GOAL_NOT_MET
    bodies = "".join(request.body.decode() for request in server.requests)
    assert "[redacted]" in bodies
    assert OURS not in bodies + ran.out + ran.err + everything_kept()


async def test_hooks_tell_no_key():
    Path("k").write_text(OURS)
    settings = {
        "UserPromptSubmit": [{"hooks": [{"type": "command", "command": "cat k"}]}],
        "PreToolUse": [{"hooks": [{"type": "command", "command": "cat k >&2; exit 2"}]}],
    }
    (Path.home() / ".treadle").mkdir(exist_ok=True)
    (Path.home() / ".treadle" / "settings.json").write_text(json.dumps({"hooks": settings}))
    async with ProviderServer([FakeReply(calls=(FakeCall("ls", {}),)), LAST]) as server:
        ran = await run(
            server, "-p", "go", "--verbose", "--output-format", "stream-json", OTHER_KEY=OURS
        )
    bodies = "".join(request.body.decode() for request in server.requests)
    assert bodies.count("[redacted]") > 1
    assert OURS not in bodies + ran.out + ran.err + everything_kept()


async def test_memory_attachments_and_what_is_piped_hold_no_key():
    Path("k").write_text(f"attached {OURS}")
    Path("AGENTS.md").write_text(f"remember {OURS}")
    await run(None, "trust")
    async with ProviderServer([FakeReply(calls=(FakeCall("ls", {}),)), LAST]) as server:
        await run(server, "-p", "look @k", said=f"piped {OURS}".encode(), A_PAT=OURS)
    body = server.requests[-1].body.decode()
    for word in ("attached", "remember", "piped"):
        assert f"{word} [redacted]" in body
    assert OURS not in body + everything_kept()


async def test_a_memory_file_that_changes_meanwhile_tells_no_key_and_is_told_once():
    Path("AGENTS.md").write_text("Be brief.")
    await run(None, "trust")
    change = FakeCall("bash", {"command": "cat k > AGENTS.md"})
    Path("k").write_text(f"remember {OURS}")
    replies = [FakeReply(calls=(change,)), *[FakeReply(calls=(FakeCall("ls", {}),))] * 2, LAST]
    async with ProviderServer(replies) as server:
        await run(server, "-p", "go", *FREELY, A_TOKEN=OURS)
    body = server.requests[-1].body.decode()
    assert OURS not in body + everything_kept()
    assert body.count("remember [redacted]") == 1


def test_a_secret_is_known_by_its_name_and_a_token_by_its_shape():
    env = {
        "A_TOKEN": "0123456789",
        "SOME_API_KEY": "short",
        "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/google.json",
        "PATH": "/bin:/usr/bin",
    }
    assert find_environment_secrets(env) == ("0123456789",)
    assert redact(("0123456789",), "a 0123456789 b") == "a [redacted] b"
    assert redact_for_display(f"x {THEIRS} y") == "x [redacted] y"
    assert redact_for_display("nothing here") == "nothing here"
