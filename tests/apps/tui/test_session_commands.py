"""Settings, rules, side questions, reviews and AGENTS.md from inside a session."""

import json
import subprocess
from pathlib import Path

from tests.apps.tui.harness import (
    RunningApp,
    exists,
    make_usage,
    read_file,
    running_app,
    scripted,
    write_file,
)
from treadle.core.contracts.model import ModelRequest, ModelUsageUpdated
from treadle.models.scripted import Pause, Say, ScriptElement

LOCAL = ".treadle/settings.local.json"


def config_file() -> Path:
    return Path.home() / ".treadle/config.toml"


def list_files() -> list[str]:
    return [path.name for path in Path.cwd().iterdir()]


async def ask(on: RunningApp, line: str, answer: str) -> None:
    await on.send(line)
    await on.sees(answer)


async def test_a_setting_is_shown_changed_and_removed_and_a_wrong_one_changes_nothing(monkeypatch):
    write_file(str(config_file()), "# mine\nmax_turns = 9\n")
    async with running_app(monkeypatch, size=(120, 40)) as on:
        await ask(on, "/config max_turns", "limit of tool rounds per turn")
        await ask(on, "/config max_turns many", "max_turns cannot be 'many'")
        await ask(on, "/config max_trns 3", "did you mean 'max_turns'?")
        assert read_file(str(config_file())) == "# mine\nmax_turns = 9\n"
        written = "max_turns = 12 is written to ~/.treadle/config.toml; it was 9 ("
        await ask(on, "/config max-turns 12", written)
        assert read_file(str(config_file())) == "# mine\nmax_turns = 12\n"
        await ask(on, "/config max_turns --unset", "max_turns is removed from ~/.treadle")
        assert read_file(str(config_file())) == "# mine\n"
        await ask(on, '/config append_system_prompt "be brief"', "= be brief is written")
        assert 'append_system_prompt = "be brief"' in read_file(str(config_file()))
        monkeypatch.setenv("TREADLE_MAX_TURNS", "7")
        await ask(on, "/config max_turns 30", "here it is 7: TREADLE_MAX_TURNS decides")


async def test_a_hook_can_deny_a_change_of_a_setting(monkeypatch):
    command = "cat > given.json; echo 'not now' >&2; exit 2"
    hooks = {"ConfigChange": [{"matcher": "user_settings", "hooks": [{"command": command}]}]}
    write_file(str(Path.home() / ".treadle/settings.json"), json.dumps({"hooks": hooks}))
    async with running_app(monkeypatch, size=(120, 40)) as on:
        await ask(on, "/config max_turns 12", "max_turns is not changed: not now")
        assert not config_file().exists() or "max_turns" not in read_file(str(config_file()))
    given = json.loads(read_file("given.json"))
    assert given["hook_event_name"] == "ConfigChange"
    assert (given["source"], given["file_path"]) == ("user_settings", str(config_file()))


async def test_a_setting_with_which_no_session_opens_is_taken_back(monkeypatch):
    async with running_app(monkeypatch, scripted(["one", "two"]), size=(120, 40)) as on:
        await on.send("hello")
        await on.idle()
        monkeypatch.setattr("treadle.apps.assembly.assemble.load_rules", _fail_once())
        await ask(on, "/config max_turns 12", "max_turns is not changed: broken")
        assert not config_file().exists() or "max_turns" not in read_file(str(config_file()))
        await ask(on, "go on", "two")


def _fail_once():
    from treadle.apps.settings import folder_rules as rules
    from treadle.core.errors import ConfigError

    failures = [ConfigError("broken")]

    def load(*given, **named):
        if failures:
            raise failures.pop()
        return rules.load_rules(*given, **named)

    return load


async def test_rules_are_added_and_removed_and_hold_at_once(monkeypatch):
    touch = Say(calls=[("bash", {"command": "touch made.txt"})])
    async with running_app(monkeypatch, scripted([touch, "done"]), size=(120, 40)) as on:
        await ask(on, "/permissions add Bash(touch", "'Bash(touch' is not a rule")
        await ask(on, "/permissions add deny", "usage: /permissions add")
        added = "+ allow Bash(touch:*)   added to"
        await ask(on, "/permissions add Bash(touch:*)", added)
        assert "Bash(touch:*)" in read_file(LOCAL)
        await on.send("make it")
        await on.sees("done")  # without an approval
        assert exists("made.txt")
        await ask(on, "/permissions add Bash(touch:*)", "is in")
        await ask(on, "/permissions add deny Read(.env) --project", "+ deny Read(.env)   added")
        assert "Read(.env)" in read_file(".treadle/settings.json")
        await ask(on, "/permissions add Bash --user", "note: this allows every command")
        await ask(on, "/permissions remove Bash(touch)", "did you mean Bash(touch:*)?")
        await ask(on, "/permissions remove Bash(touch:*)", "- allow Bash(touch:*)   removed from")
        assert "touch" not in read_file(LOCAL)


async def test_a_rule_in_a_file_of_claude_code_is_named_and_not_removed(monkeypatch):
    text = '{"permissions": {"deny": ["Read(secret.txt)"]}}'
    write_file(".claude/settings.json", text)
    async with running_app(monkeypatch, size=(120, 40)) as on:
        await ask(on, "/permissions remove Read(secret.txt)", ".claude/settings.json:1, which")
        assert read_file(".claude/settings.json") == text


async def test_a_side_question_is_answered_in_a_panel_and_is_not_in_the_next_request(monkeypatch):
    aside = Say("In **Europe**.", usage=make_usage(5_000))
    model = scripted(["Paris.", aside, "Rome."])
    async with running_app(monkeypatch, model) as on:
        await ask(on, "/btw where?", "this session is empty")
        await ask(on, "/btw", "usage: /btw QUESTION")
        assert "asking the side question" not in on.screen()
        await ask(on, "capital of France?", "Paris.")
        await on.idle()
        await ask(on, "/btw where is that?", "In Europe.")
        await on.sees("not part of the conversation")
        assert "$0.0" in on.screen()
        await on.press("q", "enter")
        await on.until(lambda: not on.app.dialogs.is_open, "the end of the panel")
        await ask(on, "and of Italy?", "Rome.")
        assert "where is that?" not in str(list(model.requests[-1].transcript))
        assert on.app.conversation.view.usage.cost == on.app.session.driver.usage.cost


async def test_esc_stops_a_side_question_and_the_work_continues(monkeypatch):
    work, aside = Pause(), Pause()
    used = ModelUsageUpdated(make_usage(5_000))

    def answer(request: ModelRequest) -> ScriptElement:
        is_aside = "side question" in str(request.transcript[-1])
        return [used, "It ", aside, "is."] if is_aside else ["It ", work, "is done."]

    async with running_app(monkeypatch, scripted(answer)) as on:
        await on.send("work")
        await work.reached.wait()
        await ask(on, "/btw when?", "asking the side question; esc stops it")
        await aside.reached.wait()
        await on.press("escape")
        await on.sees("the side question is stopped: $0.0")
        assert not on.app.dialogs.is_open
        assert on.app.conversation.view.usage.cost == on.app.session.driver.usage.cost
        assert not on.app.conversation.driver.is_interrupted
        work.release()
        await on.sees("is done.")


async def test_a_side_question_is_answered_while_a_turn_runs(monkeypatch):
    pause = Pause()

    def answer(request: ModelRequest) -> ScriptElement:
        is_aside = "side question" in str(request.transcript[-1])
        return "Soon." if is_aside else ["It ", pause, "is done."]

    async with running_app(monkeypatch, scripted(answer)) as on:
        await on.send("work")
        await pause.reached.wait()
        await ask(on, "/btw when?", "Soon.")
        await on.press("escape")
        await on.until(lambda: not on.app.dialogs.is_open, "the end of the panel")
        assert on.app.conversation.view.is_busy
        pause.release()
        await on.sees("It is done.")


async def git(*words: str) -> None:
    subprocess.run(["git", *words], check=True, capture_output=True)  # noqa: ASYNC221


async def commit_all() -> None:
    await git("add", "-A")
    await git("-c", "user.name=n", "-c", "user.email=e", "commit", "--allow-empty", "-qm", "m")


async def test_diff_and_review_run_no_program_that_the_folder_names(monkeypatch):
    write_file("a.py", "print(1)\n")
    write_file(".gitattributes", "*.py diff=py\n")
    await git("init", "-q")
    await commit_all()
    for name in ("core.fsmonitor", "diff.external", "diff.py.textconv"):
        await git("config", name, f"touch {Path.cwd()}/{name}.ran #")
    write_file("a.py", "print(2)\n")
    async with running_app(monkeypatch, scripted(["No findings."]), size=(120, 40)) as on:
        await on.send("/diff")
        await on.sees("1 + print(2)")
        await on.press("escape")
        await ask(on, "/review", "No findings.")
    assert not [name for name in list_files() if name.endswith(".ran")]


async def test_the_changes_are_a_screen_by_turn_session_and_git_with_hunks(monkeypatch):
    lines = [f"line {place}" for place in range(40)]
    write_file("a.txt", "\n".join(lines))
    write_file("gone.txt", "gone\n")
    await git("init", "-q")
    await commit_all()
    write_file("own.txt", "mine\n")
    changed = [*lines]
    changed[2], changed[35] = "two", "thirty-five"
    calls = [
        ("write", {"file_path": "a.txt", "content": "\n".join(changed)}),
        ("write", {"file_path": "new.txt", "content": "new\n"}),
    ]
    read = ("read", {"file_path": "a.txt"})
    script: list[ScriptElement] = [Say(calls=[read]), Say(calls=calls), "done"]
    flags: dict[str, object] = {"permission_mode": "accept-edits"}
    async with running_app(monkeypatch, scripted(script), size=(100, 40), flags=flags) as on:
        await on.send("go")
        await on.sees("done")
        await on.idle()
        await git("rm", "-q", "gone.txt")
        await on.send("/diff")
        await on.sees("Changes of the last turn: 2 files, +3 −2   [turn]  session  git")
        await on.sees("▸ 1 M a.txt  +2 −2")
        await on.sees("3 + two")
        await on.press("tab")
        await on.sees("turn  [session]  git")
        await on.press("tab")
        await on.sees("Changes since the last commit: 4 files")
        await on.sees("D gone.txt  +0 −1")
        await on.sees("A own.txt  +1 −0")
        await on.press("enter")
        await on.sees("hunk 2 of 2  line 33 +1 −1")
        await on.press("down")
        await on.sees("a.txt\n  33   line 32")  # above the list: only this hunk
        await on.press("enter")
        await on.press("x", "enter")
        await on.sees("dropped hunk 2 of a.txt")
        await on.sees("M a.txt  +1 −1")
        await on.press("escape")
        assert read_file("a.txt").split("\n") == [*lines[:2], "two", *lines[3:]]
        await on.send("/redo")
        await on.sees("redid the hunk that was dropped last: restored a.txt")
    assert read_file("a.txt").split("\n") == changed


async def test_a_review_is_made_by_an_agent_that_only_reads(monkeypatch):
    seen: list[ModelRequest] = []
    task = {"description": "review it", "prompt": "Review.", "subagent_type": "review"}
    write = Say(calls=[("bash", {"command": "touch made.txt"}), ("bash", {"command": "git diff"})])

    def record(request: ModelRequest) -> str:
        seen.append(request)
        return "a.py:1: it is wrong"

    script: list[ScriptElement] = [
        Say(calls=[("task", task)]),
        write,
        record,
        "One finding: a.py:1: it is wrong",
    ]
    async with running_app(monkeypatch, scripted(script), size=(120, 40)) as on:
        await ask(on, "/review", "this folder is not in a git repository")
        await git("init", "-q")
        await commit_all()
        await ask(on, "/review main..nowhere", "git does not know the commits main..nowhere")
        write_file("a.py", "print(1)\n")
        await on.send("/review")
        await on.sees("One finding: a.py:1: it is wrong")
        assert not exists("made.txt")
        child = str(list(seen[0].transcript))
        assert "plan mode" in child  # touch was denied
        names = {spec.name for spec in seen[0].tools}
        assert not names & {"write", "edit", "task"}


async def test_init_shows_what_it_writes_also_where_edits_are_accepted(monkeypatch):
    edit = Say(calls=[("write", {"file_path": "AGENTS.md", "content": "Use make.\n"})])
    other = Say(calls=[("write", {"file_path": "b.txt", "content": "b\n"})])
    flags: dict[str, object] = {"permission_mode": "accept-edits"}
    model = scripted([edit, other, "Written."])
    async with running_app(monkeypatch, model, flags=flags) as on:
        await ask(on, "/init", "Allow write AGENTS.md?")
        assert "+ Use make." in on.screen()
        assert not exists("AGENTS.md")
        await on.press("y", "enter")
        await on.sees("Written.")  # b.txt needed no approval
        assert read_file("AGENTS.md") == "Use make.\n"


async def test_a_model_that_a_command_chose_is_not_said_to_be_an_option(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    async with running_app(monkeypatch, flags={"max_turns": 9}) as on:
        await on.send("/model sonnet")
        await on.until(lambda: on.app.session.choices.flags.get("model") == "sonnet")
        await on.idle()
        await on.send("/config model")
        await on.sees("set by: /model")
        await on.send("/config max_turns")
        await on.sees("set by: --max-turns")
