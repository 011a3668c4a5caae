from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.apps.tui.harness import (
    RunningApp,
    exists,
    make_usage,
    read_file,
    running_app,
    scripted,
    use,
    write_file,
)
from treadle.apps.conversation.commands import agents
from treadle.core.contracts.model import ModelCard
from treadle.models.scripted import Pause, Say, Scripted, ScriptElement


async def test_commands_that_show_information(monkeypatch):
    write_file(".treadle/agents/reviewer.md", "---\nname: reviewer\ndescription: reads\n---\nRead.")
    async with running_app(monkeypatch, scripted([Say("ok", usage=make_usage(5_000))])) as on:
        await on.send("hello")
        await on.sees("ok")
        await on.idle()
        for line, answer in (
            ("/cost", "requests"),
            ("/context", "free"),
            ("/forecast fix it", "earlier task"),
            ("/permissions", "there are no rules"),
            ("/config", "theme = "),
            ("/doctor", "settings  valid"),
            ("/todo", "there is no todo list"),
            ("/tasks", "there are no background tasks"),
            ("/agents", "reviewer"),
            ("/skills", "there are no skills"),
            ("/uncompact", "sees the whole history already"),
            ("/remember tests need a database", "AGENTS.md"),
            ("/redo", "nothing to redo"),
            ("/nonsense", "unknown command /nonsense"),
            ("/hlep", "did you mean /help?"),
            ("/mode sideways", "unknown mode 'sideways'"),
            ("/theme pink", "unknown theme 'pink'"),
        ):
            await on.send(line)
            await on.sees(answer)
        assert read_file("AGENTS.md") == "- tests need a database\n"


async def test_config_formats_values_and_doctor_leaves_out_the_terminal(monkeypatch):
    async with running_app(monkeypatch, size=(100, 40)) as on:
        await on.send("/config")
        await on.sees("max_time = no limit")
        assert "network = false" in on.screen()
        await on.send("/doctor")
        await on.sees("✓ python")
        assert "stdout is not a terminal" not in on.screen()


async def test_a_choice_starts_at_the_current_value(monkeypatch):
    async with running_app(monkeypatch, flags={"permission_mode": "auto"}) as on:
        await on.send("/mode")
        await on.sees("▸ 4 auto")


async def test_a_fault_in_a_command_does_not_end_the_session(monkeypatch):
    async with running_app(monkeypatch, scripted(["Still here."])) as on:
        monkeypatch.setattr(agents, "list_agents", lambda session: 1 / 0)
        await on.send("/agents")
        await on.sees("/agents failed: ZeroDivisionError")
        await on.send("hello")
        await on.sees("Still here.")


async def test_remember_adds_to_claude_md_if_there_is_that_alone(monkeypatch):
    write_file("CLAUDE.md", "Use tabs.\n")
    async with running_app(monkeypatch) as on:
        await on.send("/remember use unittest")
        await on.sees("added to ")
        assert read_file("CLAUDE.md") == "Use tabs.\n- use unittest\n"
        assert not exists("AGENTS.md")
        write_file("AGENTS.md", "")
        await on.send("/remember use ruff")
        await on.until(lambda: read_file("AGENTS.md") == "- use ruff\n", "the entry")


async def test_a_line_with_a_number_sign_adds_to_the_memory_file(monkeypatch):
    model = scripted(["Yes."])
    async with running_app(monkeypatch, model) as on:
        await on.send("# always use unittest")
        await on.until(lambda: exists("AGENTS.md"), "the memory file")
        await on.sees("added to")
        assert read_file("AGENTS.md") == "- always use unittest\n"
        await on.send("# A heading\nand more")  # a message
        await on.sees("Yes.")
        assert len(model.requests) == 1


async def test_a_theme_is_remembered_unless_the_terminal_wants_no_colours(monkeypatch):
    file = Path.home() / ".treadle/config.toml"
    write_file(str(file), "# mine\nmax_turns = 9\n")
    async with running_app(monkeypatch) as on:
        await on.send("/theme light")
        await on.sees("theme light: saved in")
        assert on.app.palette.name == "light"
        assert read_file(str(file)) == '# mine\nmax_turns = 9\ntheme = "light"\n'
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TREADLE_THEME", "light")
        await on.send("/theme dark")
        await on.sees("NO_COLOR is set")
        await on.sees("TREADLE_THEME sets light")
        assert on.app.palette.name == "none"
        assert 'theme = "dark"' in read_file(str(file))


async def test_a_session_is_left_found_again_and_forked(monkeypatch):
    async with running_app(monkeypatch, scripted(["one", "two"])) as on:
        await on.send("count")
        await on.idle()
        first = on.app.session.driver.session_id
        await on.send("/clear")
        await on.until(lambda: "› count" not in on.screen(), "an empty screen")
        await on.idle()
        assert on.app.session.driver.session_id != first
        await on.send("/sessions")
        await on.sees("Resume a session")
        await on.press("enter")
        await on.sees("› count")
        assert on.app.session.driver.session_id == first
        await on.send("/fork")
        await on.sees(f"this session is a fork of {first}")
        assert on.app.session.driver.session_id != first
        await on.send("again")
        await on.sees("two")


async def test_a_session_that_is_not_there_leaves_one_where_one_was(monkeypatch):
    async with running_app(monkeypatch, scripted(["one", "two"])) as on:
        await on.send("count")
        await on.idle()
        first = on.app.session.driver.session_id
        await on.send("/resume nowhere")
        await on.sees("has 'nowhere' in its title")
        assert on.app.session.driver.session_id == first
        await on.send("go on")
        await on.sees("two")


async def test_what_a_turn_did_to_files_is_taken_back_and_brought_back(monkeypatch):
    write = Say(calls=[("write", {"file_path": "a.txt", "content": "new\n"})])
    flags: dict[str, object] = {"permission_mode": "accept-edits"}
    async with running_app(monkeypatch, scripted([write, "done"]), flags=flags) as on:
        await on.send("make it")
        await on.sees("done")
        await on.idle()
        await on.send("/undo b.txt")
        await on.sees("b.txt: the agent did not change this file, so nothing was changed")
        assert exists("a.txt")
        await on.send("/undo")
        await on.sees("undid the file changes of turn 1 (make it): removed a.txt")
        assert not exists("a.txt")
        await on.send("/redo")
        await on.sees("redid the file changes of turn 1 (make it): restored a.txt")
        assert exists("a.txt")
        await on.send("/undo")
        await on.until(lambda: not exists("a.txt"))
        await on.send("/undo")
        await on.sees("nothing left to undo")


async def test_undo_lists_the_files_and_asks_about_those_that_the_user_changed_too(monkeypatch):
    calls = [
        ("write", {"file_path": "tool.txt", "content": "new\n"}),
        ("bash", {"command": "echo 1 > made.txt; echo 1 > also.txt"}),
    ]
    flags: dict[str, object] = {"permission_mode": "bypass", "sandbox": "off"}
    async with running_app(monkeypatch, scripted([Say(calls=calls), "done"]), flags=flags) as on:
        await on.send("make it")
        await on.sees("done")
        await on.idle()
        write_file("made.txt", "mine\n")
        await on.send("/undo")
        await on.sees("made.txt  (you changed it, too: left alone)")
        await on.sees("▸ n Change nothing")
        await on.sees("a Delete made.txt too (it contains your changes)")
        await on.press("enter")
        await on.until(lambda: not on.app.dialogs.is_open)
        assert exists("also.txt")
        await on.send("/undo")
        await on.sees("o Only what the agent changed: delete also.txt and tool.txt")
        await on.press("o", "enter")
        await on.sees("undid the file changes of turn 1 (make it): removed also.txt, tool.txt")
        assert exists("made.txt")
        await on.send("/redo")
        await on.until(lambda: exists("tool.txt"))
        await on.send("/undo")
        await on.sees("a Delete made.txt too (it contains your changes)")
        await on.press("a", "enter")
        await on.until(lambda: not exists("made.txt"))
        write_file("made.txt", "other\n")
        await on.send("/redo")
        await on.sees("a Change made.txt too (it contains your changes)")
        await on.press("o", "enter")
        await on.until(lambda: exists("tool.txt"))
        await on.send("/redo")
        await on.sees("nothing left to redo but files that you changed: made.txt; /redo PATH")
        await on.send("/redo made.txt")
        await on.until(lambda: read_file("made.txt") == "mine\n")


async def test_enter_on_an_undo_deletes_no_file_that_the_user_changed(monkeypatch):
    call = ("write", {"file_path": "w.txt", "content": "new\n"})
    flags: dict[str, object] = {"permission_mode": "accept-edits"}
    async with running_app(monkeypatch, scripted([Say(calls=[call]), "done"]), flags=flags) as on:
        await on.send("make it")
        await on.sees("done")
        await on.idle()
        write_file("w.txt", "new\nand mine\n")
        await on.send("/undo")
        await on.sees("Delete w.txt too (it contains your changes)")
        await on.sees("▸ n Change nothing; the next /undo goes on to another turn")
        await on.press("escape")
        await on.until(lambda: not on.app.dialogs.is_open)
        await on.send("/undo")
        await on.until(lambda: on.app.dialogs.is_open)
        await on.press("enter")
        await on.sees("w.txt (you changed it since); to restore such a file, too: `/undo PATH`")
        assert read_file("w.txt") == "new\nand mine\n"
        await on.send("/undo")
        await on.sees("nothing left to undo but files that you changed: w.txt; /undo PATH")
        await on.send("/undo w.txt")
        await on.until(lambda: not exists("w.txt"))
        await on.send("/redo")
        await on.until(lambda: exists("w.txt"))
        assert read_file("w.txt") == "new\nand mine\n"


async def test_a_session_is_written_to_a_file(monkeypatch):
    async with running_app(monkeypatch, scripted(["The answer."])) as on:
        await on.send("a question")
        await on.idle()
        for name in ("out.md", "out.html", "out.json"):
            await on.send(f"/export {name}")
            await on.until(partial(exists, name), name)
            assert "The answer." in read_file(name)


async def test_a_goal_holds_the_turn_open(monkeypatch):
    write_file("ready.sh", "test -e ready")
    model = scripted(["I stop.", Say(calls=[("bash", {"command": "touch ready"})]), "Now."])
    flags: dict[str, object] = {"permission_mode": "ask"}
    async with running_app(monkeypatch, model, flags=flags) as on:
        await on.send("/goal sh ready.sh")
        await on.sees("until this succeeds")
        await on.send("go")
        await on.sees("Run this command?")
        await on.press("y", "enter")
        await on.sees("Now.")
        await on.idle()
        assert exists("ready")


async def test_enter_does_nothing_after_a_goal_that_was_not_met_is_removed(monkeypatch):
    model = scripted(["I tried.", "again", "unwanted", "Hello."])
    async with running_app(monkeypatch, model, flags={"goal_attempts": 2}, size=(110, 40)) as on:
        await on.send("/goal false")
        await on.sees("goal set")
        await on.send("go")
        await on.sees("the goal is not met")
        await on.idle()
        count = len(model.requests)
        await on.send("/goal off")
        await on.sees("there is no goal any more")
        assert "not finished" not in on.screen()
        await on.press("enter")
        await on.idle()
        assert len(model.requests) == count
        await on.send("hello")
        await on.until(lambda: len(model.requests) == count + 1, "the next turn")


async def test_a_goal_shows_each_attempt_and_a_missing_command_stops_at_once(monkeypatch):
    model = scripted(["I stop.", "One.", "Two."])
    async with running_app(monkeypatch, model, flags={"goal_attempts": 2}, size=(110, 40)) as on:
        await on.send("/goal")
        await on.sees("/goal off         removes it")
        await on.send("/goal all-tests pass")
        await on.send("go")
        await on.sees("goal, attempt 1 of 2: `all-tests pass` cannot run: command not found")
        await on.sees("/goal off removes the goal")
        assert len(model.requests) == 1
        await on.send("/goal echo broken; false")
        await on.send("go")
        await on.sees("goal, attempt 2 of 2: `echo broken; false` failed with exit code 1")
        await on.sees("  broken")
        await on.send("/goal clear")
        await on.sees("there is no goal any more")


async def test_a_command_of_ones_own_with_arguments(monkeypatch):
    write_file(
        ".claude/commands/fix.md", "---\ndescription: mend one\n---\nFix issue $1: $ARGUMENTS"
    )
    write_file(".treadle/commands/git/log.md", "Show the log.")
    model = scripted(["fixed", "shown"])
    async with running_app(monkeypatch, model) as on:
        await on.until(lambda: len(on.app.session.custom_commands) == 2, "the commands")
        await on.send("/fix 12 now")
        await on.sees("fixed")
        await on.idle()
        assert model.requests[0].transcript[0].text == "Fix issue 12: 12 now"
        await on.send("/git:log")
        await on.sees("shown")


async def test_commands_of_an_untrusted_folder_do_not_count(monkeypatch):
    write_file(".treadle/commands/evil.md", "do evil")
    async with running_app(monkeypatch, trusted=False) as on:
        await on.sees("Do you trust")
        await on.press("n", "enter")
        await on.sees("/help lists")
        assert on.app.session.custom_commands == []
        assert not on.app.session.trust.is_given


async def test_quitting_the_trust_dialog_quits_the_program(monkeypatch):
    async with running_app(monkeypatch, trusted=False) as on:
        await on.sees("Do you trust")
        await on.press("q", "enter")
        await on.until(lambda: on.app.return_code is not None, "the end")
        assert on.app.return_code == 0


async def test_some_commands_wait_until_the_turn_is_over(monkeypatch):
    pause = Pause()
    async with running_app(monkeypatch, scripted([["x", pause]])) as on:
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.send("/clear")
        await on.sees("/clear is not available while a turn runs")
        await on.send("/cost")
        await on.sees("requests")
        await on.press("escape")


async def test_compact_makes_the_history_shorter_or_says_that_it_cannot(monkeypatch):
    async with running_app(monkeypatch, scripted(["a", "b", "a summary"])) as on:
        await on.send("one")
        await on.idle()
        await on.send("/compact")
        await on.sees("nothing was compacted")


async def test_a_used_up_budget_names_the_limit_and_budget_raises_it(monkeypatch):
    used = make_usage(4_000_000)
    model = scripted([Say("Costly.", usage=used), "Go on."])
    flags: dict[str, object] = {"max_cost": 2.0}
    async with running_app(monkeypatch, model, flags=flags, size=(100, 40)) as on:
        await on.send("/budget")
        await on.sees("max_cost: $0.00 of $2.00 spent, set by --max-cost")
        await on.send("work")
        await on.sees("Costly.")
        await on.idle()
        await on.send("more")
        await on.sees("stopped: ")
        await on.sees("max_cost: $12.00 of $2.00 spent, set by --max-cost")
        await on.sees("/budget 24 raises the limit of this session to $24")
        await on.idle()
        await on.send("/budget 20")
        await on.sees("max_cost: $12.00 of $20.00 spent, set by /budget")
        for earlier in ("max_cost: $0.00 of $2.00 spent", "stopped: ", "$12.00 of $2.00 spent"):
            assert earlier in on.screen()  # the messages before it stay
        await on.send("more")
        await on.sees("Go on.")
        await on.send("/budget lots")
        await on.sees("usage: /budget USD")


async def test_budget_takes_times_refuses_a_decimal_comma_and_removes_a_limit(monkeypatch):
    async with running_app(monkeypatch, flags={"max_cost": 2.0}, size=(100, 40)) as on:
        await on.send("/budget 1,50")
        await on.sees("write the amount without a comma, for example 1.50; usage: /budget USD")
        await on.send("/budget tokens 500,000")
        await on.sees("max_tokens: 0 of 500,000 tokens used, set by /budget")
        await on.sees("max_cost: $0.00 of $2.00 spent, set by --max-cost")
        await on.send("/budget time 5m")
        await on.sees("max_time: 300 seconds for a turn, set by /budget")
        for limit in ("tokens off", "time off"):
            await on.send(f"/budget {limit}")
            await on.idle()
        await on.send("/budget off")
        await on.sees("this session has no limit of cost, tokens or time")
        await on.send("/budget 3")
        await on.sees("max_cost: $0.00 of $3.00 spent, set by /budget")


async def test_a_compaction_is_told_once_and_the_context_is_counted_anew(monkeypatch):
    long = Say("word " * 4_000, usage=make_usage(30_000))
    script: list[ScriptElement] = [long, long, "Short.", Say("Sum.", usage=make_usage(29_000))]
    async with running_app(monkeypatch, scripted(script), size=(100, 60)) as on:
        for text in ("one", "two", "three"):
            await on.send(text)
            await on.idle()
        on.app.conversation.set_context_tokens(40_000)
        await on.send("/compact")
        await on.sees("compacted the context")
        compacted = on.app.conversation.view.context_tokens
        assert 20_000 < compacted < 35_000
        assert on.screen().count("shorter history") == 1
        await on.send("/uncompact")
        await on.sees("whole history again")
        assert abs(on.app.conversation.view.context_tokens - 40_000) < 10
        await on.send("/context")
        await on.sees("40.0k of 200k tokens")


async def test_a_change_of_the_mode_is_not_told_as_a_shorter_history(monkeypatch):
    async with running_app(monkeypatch, scripted(["One.", "Two."])) as on:
        await on.send("one")
        await on.idle()
        await on.send("/mode plan")
        await on.send("two")
        await on.sees("Two.")
        await on.idle()
        assert "history" not in on.screen()


async def test_a_bare_goal_shows_it_and_off_removes_it(monkeypatch):
    async with running_app(monkeypatch) as on:
        await on.send("/goal")
        await on.sees("no goal is set.")
        await on.send("/goal true")
        await on.sees("goal set: every turn continues until this succeeds: true")
        await on.send("/goal")
        await on.sees("/goal off removes it")
        assert on.app.session.limits.goal == "true"
        await on.send("/goal off")
        await on.sees("there is no goal any more")
        assert on.app.session.limits.goal == ""
        assert on.screen().count("scripted: says") == 1  # the notes of the start are not repeated


async def test_the_status_line_shows_the_new_model_at_once(monkeypatch):
    async with running_app(monkeypatch, scripted(["Hello."])) as on:
        await on.send("hi")
        await on.sees("Hello.")
        await on.idle()
        use(monkeypatch, Scripted(["x"], card=ModelCard("another", window=1_000)))
        await on.send("/model claude-sonnet-4-5")
        await on.sees("needs a key: set ANTHROPIC_API_KEY")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        await on.send("/model claude-sonnet-4-5")
        await on.until(lambda: "another" in on.screen().split("\n")[-1], "the new name")


async def test_a_format_that_cannot_be_exported_is_refused(monkeypatch):
    async with running_app(monkeypatch) as on:
        await on.send("hi")
        await on.idle()
        await on.send("/export x.pdf")
        await on.sees("cannot export to .pdf files; the file name may end in .md, .html, .json")
        assert not exists("x.pdf")
        write_file("notes.md", "mine")
        await on.send("/export notes.md")
        await on.sees("notes.md exists; choose another name, or remove it first")
        assert read_file("notes.md") == "mine"


async def test_a_path_as_the_first_word_is_a_message(monkeypatch):
    model = scripted(["Seen."] * 3)
    async with running_app(monkeypatch, model) as on:
        for text in ("/usr/bin/env is what?", "/tmp what is there", "/no/such.py: why?"):
            await on.send(text)
            await on.idle()
            assert model.requests[-1].transcript[-1].text == text
        await on.send("/nonsense")
        await on.sees("unknown command /nonsense")


async def test_the_signs_of_calls_are_the_same_after_a_restart(monkeypatch):
    background = {"command": "true", "run_in_background": True}
    calls = [("ls", {}), ("read", {"file_path": "nope"}), ("bash", {"command": "touch x"})]
    script: list[ScriptElement] = [Say(calls=[*calls, ("bash", background)]), "Done.", "Seen."]
    async with running_app(monkeypatch, scripted(script)) as on:
        await on.send("go")
        await on.sees("Run this command?")
        await on.press("r", "enter")
        await on.sees("Why not?")
        await on.press(*"later", "enter")
        await on.sees("Done.")
        await on.sees("finished")
        await on.idle()
        live = list_calls(on)
    async with running_app(monkeypatch, resume="") as on:
        await on.sees("Done.")
        resumed = list_calls(on)
    assert [line[0] for line in live] == ["●", "✗", "⊘", "●"]
    assert resumed[:3] == live[:3]
    assert resumed[3].startswith("● bash true")


def list_calls(on: RunningApp) -> list[str]:
    return [line for line in on.screen().split("\n") if line.startswith(tuple("●✗⊘◌◦"))]


@asynccontextmanager
async def app_with_background_work(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningApp]:
    background = {"command": "sleep 600", "run_in_background": True}
    model = scripted([Say(calls=[("bash", background)]), "It runs."])
    async with running_app(monkeypatch, model, flags={"permission_mode": "bypass"}) as on:
        await on.send("go")
        await on.sees("It runs.")
        await on.idle()
        yield on


async def test_ctrl_d_names_the_background_work_that_it_would_end(monkeypatch):
    async with app_with_background_work(monkeypatch) as on:
        await on.press("ctrl+d")
        await on.sees("ctrl+d again quits and ends 1 task: ")
        assert on.app.return_code is None
        await on.press("ctrl+d")
        await on.until(lambda: on.app.return_code is not None, "the end")


async def test_quit_asks_before_it_ends_background_work(monkeypatch):
    async with app_with_background_work(monkeypatch) as on:
        await on.send("/quit")
        await on.sees("Quit, and end 1 task: ")
        await on.press("escape")
        await on.until(lambda: not on.app.dialogs.is_open, "the dialog's end")
        assert on.app.return_code is None
        await on.send("/quit")
        await on.until(lambda: on.app.dialogs.is_open, "the dialog")
        await on.press("q", "enter")
        await on.until(lambda: on.app.return_code is not None, "the end")


async def test_exit_quit_and_help_alone_are_commands(monkeypatch):
    model = scripted(["No."])
    async with running_app(monkeypatch, model) as on:
        await on.send("help")
        await on.sees("list commands and keys")  # its beginning
        await on.send("exit")
        await on.until(lambda: on.app.return_code is not None, "the end")
    assert not model.requests
