"""The small parts: attachments, completion, history, previews, status area, context usage."""

# ruff: noqa: ASYNC240 (files are how a test and the program meet)

import os
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from tests.apps.tui.harness import write_file
from treadle.apps.conversation import helper_programs
from treadle.apps.conversation.attachments import Attachments
from treadle.apps.conversation.block_text import format_activity
from treadle.apps.conversation.completion import (
    find_completions,
    fuzzy_match,
    list_project_files,
)
from treadle.apps.conversation.context_usage import (
    estimate_head,
    format_context_usage,
    measure_context,
)
from treadle.apps.conversation.state.blocks import Activity, ActivityKind, TaskLine
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.settings.command_files import find_custom_commands
from treadle.apps.tui.input.prompt_history import MAX_LINES, PromptHistory
from treadle.apps.tui.render import status_area
from treadle.apps.tui.render.palette import DARK
from treadle.context.prompt import PromptSection
from treadle.core.transcript.content import Document, Image, Text
from treadle.core.transcript.items import Item, NoticeItem, SummaryItem, UserItem, to_user_item
from treadle.core.transcript.usage import Usage
from treadle.lib.text.text import format_age, format_count, format_duration
from treadle.tools import tool
from treadle.tools.builtin.conversation.todo import TodoItem

PNG = b"\x89PNG\r\n\x1a\n"


def test_a_short_paste_is_itself_and_a_long_one_a_mark():
    attachments = Attachments(Path.cwd())
    assert attachments.add_paste("two\r\nlines") == "two\nlines"
    long = "x\n" * 50
    mark = attachments.add_paste(long)
    assert mark == "[paste 1: 50 lines]"
    assert attachments.expand_pastes(f"see {mark} there") == f"see {long} there"
    assert attachments.expand_pastes("[paste 9: made up]") == "[paste 9: made up]"


def test_a_very_long_paste_is_kept_whole():
    attachments, text = Attachments(Path.cwd()), "0123456789\n" * 1_100_000
    assert attachments.expand_pastes(attachments.add_paste(text)) == text


def test_a_pasted_path_of_a_picture_is_the_picture():
    Path("a b.png").write_bytes(PNG)
    Path("c.pdf").write_bytes(b"%PDF-1.7")
    attachments = Attachments(Path.cwd())
    mark = attachments.add_paste("'a b.png' c.pdf")
    assert mark == "[image 1: a b.png] [document 2: c.pdf] "
    item = attachments.build_item(f"look {mark}")
    assert [type(part) for part in item.content[1:]] == [Image, Document]


def test_text_with_a_path_in_it_stays_text():
    attachments = Attachments(Path.cwd())
    assert attachments.add_paste("missing.png") == "missing.png"
    assert attachments.add_paste("it's not a path.png") == "it's not a path.png"


def test_a_mentioned_image_is_attached_and_a_mentioned_source_stays_text():
    Path("plan.png").write_bytes(PNG)
    write_file("a.py", "x")
    item = Attachments(Path.cwd()).build_item("see @plan.png and @a.py and @none.png")
    assert [type(part).__name__ for part in item.content] == ["Text", "Image"]


@pytest.mark.parametrize("typed", [r"my\ plan.png", '"my plan.png"', "'my plan.png'", "plan.png"])
def test_a_typed_path_of_a_picture_is_attached_as_a_terminal_or_shell_writes_it(typed):
    for name in ("my plan.png", "plan.png"):
        Path(name).write_bytes(PNG)
    item = Attachments(Path.cwd()).build_item(f"don't you see {typed}, here?")
    assert [type(part).__name__ for part in item.content] == ["Text", "Image"]


def test_a_symlink_that_leaves_the_folder_is_not_followed_and_the_message_says_so(own_place: Path):
    for name in ("secret.png", "added/plan.png"):
        (own_place / name).parent.mkdir(exist_ok=True)
        (own_place / name).write_bytes(PNG)
    Path("out.png").symlink_to(own_place / "secret.png")
    Path("plan.png").symlink_to(own_place / "added/plan.png")
    attachments = Attachments(Path.cwd(), lambda: [own_place / "added"])
    item = attachments.build_item(f"see @out.png @plan.png and @{own_place}/secret.png")
    pasted = attachments.build_item(attachments.add_paste("out.png"))
    assert [type(part).__name__ for part in item.content] == ["Text", "Text", "Image", "Image"]
    assert f"not attached: it is a symlink to {own_place}/secret.png" in str(item.content[1])
    assert [type(part).__name__ for part in pasted.content] == ["Text", "Text"]


@pytest.mark.parametrize(
    ("line", "found"),
    [("/co", ["/cost ", "/compact "]), ("see @vi", ["@src/view.py ", '@"my view.md" ']),
     ("mail@vi", []), ("/cost now", []), ("@", ['@"my view.md" ', "@src/view.py "])],
)  # fmt: skip
def test_completions(line, found):
    commands = [("cost", "money"), ("compact", "shorter"), ("quit", "leave")]
    given = [
        offer.text for offer in find_completions(line, ["src/view.py", "my view.md"], commands)
    ]
    assert sorted(given) == sorted(found)


def test_the_best_match_is_the_name_itself():
    names = ["src/app/viewer.py", "view.py", "src/interview.txt", "v/i/e/w"]
    assert fuzzy_match("view", names)[0] == "view.py"
    assert fuzzy_match("zzz", names) == []
    assert fuzzy_match("vapy", ["src/view_app.py"]) == ["src/view_app.py"]


async def test_the_files_of_a_folder():
    for name in ("a.py", "src/b.py", "node_modules/c.js", ".git/d", ".ci/e.yml", "out/f"):
        write_file(name)
    write_file(".gitignore", "out/\n")
    assert sorted(await list_project_files(Path.cwd())) == [
        *(".ci/e.yml", ".gitignore", "a.py", "src/b.py")
    ]


@pytest.mark.parametrize("kind", ["pipe", "endless"])
async def test_a_folder_cannot_hold_up_the_list_of_its_files(kind, monkeypatch):
    monkeypatch.setattr(helper_programs, "TIMEOUT_SECONDS", 1.0)
    write_file("a.py")
    if kind == "pipe":
        os.mkfifo(".gitignore")
    else:
        Path(".gitignore").symlink_to("/dev/zero")
    assert "a.py" in await list_project_files(Path.cwd())


def test_the_history_is_kept_across_sessions():
    file = Path("h/history.jsonl")
    history = PromptHistory(file)
    for text in ("one", "two\nlines", "two\nlines"):
        history.add(text)
    tomorrow = PromptHistory(file)
    assert (tomorrow.previous("draft"), tomorrow.previous(""), tomorrow.previous("")) == (
        "two\nlines",
        "one",
        None,
    )
    assert (tomorrow.next(), tomorrow.next(), tomorrow.next()) == ("two\nlines", "draft", None)
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_key_that_was_typed_is_not_kept_in_the_history_file():
    file, key = Path("h/history.jsonl"), "sk-ant-api03-" + "a1B2" * 23 + "-AA"
    history = PromptHistory(file)
    history.add(f"my key is {key}")
    assert key not in file.read_text()
    assert "my key is" in file.read_text()
    assert history.previous("") == f"my key is {key}"


def test_the_history_file_keeps_the_beginning_of_a_long_entry():
    file, long = Path("h/history.jsonl"), "word " * 40_000
    history = PromptHistory(file)
    history.add(long)
    assert history.previous("") == long.strip()
    kept = PromptHistory(file).previous("")
    assert kept == long[:100_000] + "\n[99,999 more characters are not in the history]"


def test_a_history_file_that_has_grown_too_large_is_made_smaller_at_the_start():
    file = Path("history.jsonl")
    entries = [f"{number} " + "x" * 3_000_000 for number in range(4)] + ["short"]
    file.write_text("".join(f'"{entry}"\n' for entry in entries))
    file.chmod(0o600)
    PromptHistory(file)
    assert file.stat().st_size < 1_000_000
    again = PromptHistory(file)
    assert [line.partition(" ")[0] for line in again.lines] == ["0", "1", "2", "3", "short"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_home_that_cannot_be_written_costs_only_the_memory():
    Path("file").write_text("in the way")
    history = PromptHistory(Path("file/history.jsonl"))
    history.add("one")
    assert history.previous("") == "one"


def test_a_broken_memory_is_read_as_far_as_it_goes():
    write_file("h.jsonl", '"one"\n{broken\n"two"\n"cut')
    assert PromptHistory(Path("h.jsonl")).previous("") == "two"


def test_custom_commands_put_their_arguments_in():
    write_file("p/.treadle/commands/a.md", "Fix $1 and $2. All: $ARGUMENTS")
    write_file("p/.claude/commands/a.md", "not this one")
    write_file("p/.claude/commands/b.md", "---\ndescription: says it\n---\nJust do it.")
    write_file("p/.claude/commands/broken.md", "---\nno end")
    commands, problems = find_custom_commands([Path("p")])
    found = {one.name: one for one in commands}
    assert found["a"].expand('"x y" z') == 'Fix x y and z. All: "x y" z'
    assert (found["b"].summary, found["b"].expand("now")) == ("says it", "Just do it.\n\nnow")
    assert ["broken.md: line 1" in problem for problem in problems] == [True]


def test_custom_commands_are_read_only_from_regular_files_inside_the_folder():
    write_file("home/.treadle/commands/mine.md", "My own.")
    write_file("p/.treadle/commands/good.md", "Good.")
    place = Path("p/.treadle/commands")
    os.mkfifo(place / "pipe.md")
    (place / "endless.md").symlink_to("/dev/zero")
    (place / "out.md").symlink_to(Path("home/.treadle/commands/mine.md").absolute())
    write_file("p/.treadle/commands/huge.md", "x" * 300_000)
    Path("p/.claude").mkdir()
    Path("p/.claude/commands").symlink_to("/")
    Path("home/.claude").mkdir()
    Path("home/.claude/commands").symlink_to(place.absolute())
    found, problems = find_custom_commands([Path("p"), Path("home")], home=Path("home"))
    assert {"good", "mine"} <= {one.name for one in found}
    for words in (
        *("pipe.md: is a named pipe", "endless.md: leaves", "p/.treadle/commands/out.md: leaves"),
        *("huge.md: larger than 256 KiB", "p/.claude/commands: skipped"),
    ):
        assert any(words in problem for problem in problems), words


def test_what_is_attached_waits_for_no_pipe():
    os.mkfifo("a.png")
    Path("b.png").symlink_to("/dev/zero")
    assert len(Attachments(Path.cwd()).build_item("see @a.png and @b.png").content) == 1


def info(branch: str = "", turn_seconds: float = 0.0) -> status_area.StatusInfo:
    return status_area.StatusInfo(
        "m", 200_000, "ask", Path("/src/project"), branch, turn_seconds=turn_seconds
    )


def test_the_status_leaves_out_what_does_not_fit_the_least_important_first():
    view = ViewState(context_tokens=50_000, usage=Usage(input=50_000, cost=0.1234))
    wide = status_area.render_status_line(view, info("main", 75.0), 80, DARK).plain
    assert wide.startswith("ask · m · /src/project (main)")
    assert wide.endswith("25% of 200k · $0.12 · 1m 15s")
    assert status_area.render_status_line(view, info(), 22, DARK).plain == "ask · m    25% of 200k"
    assert status_area.render_status_line(view, info(), 3, DARK).plain == "ask"
    assert status_area.render_status_line(view, info(), 0, DARK).plain == ""


def test_the_status_shortens_the_folder_before_it_leaves_it_out():
    view = ViewState(context_tokens=50_000, usage=Usage(input=50_000, cost=0.1234))
    place = Path("/src/of/many/people/a-project-name")
    long = msgspec.structs.replace(info("main"), vim_mode="insert", folder=place)
    name = place.name
    for width, where in ((100, f"{place} (main)"), (76, f"{name} (main)  "), (56, f"{name}  ")):
        line = status_area.render_status_line(view, long, width, DARK).plain
        assert line.startswith(f"INSERT · ask · m · {where}")
        assert line.endswith("25% of 200k · $0.12")
    line = status_area.render_status_line(view, long, 51, DARK).plain
    assert line.startswith("INSERT · ask · m · …ject-name")


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_hint_that_is_longer_than_the_line_is_wrapped(is_busy: bool):
    advice = (
        "the editor './edit' is not found; set EDITOR to a program outside of the project folder"
    )
    hinted = msgspec.structs.replace(info(), hint=advice)
    lines = status_area.render_activity(ViewState(is_busy=is_busy), hinted, 60, DARK)
    assert " ".join(line.plain.strip() for line in lines[-2:]) == advice
    assert len(lines) == 2 + is_busy


def test_the_status_says_that_there_is_no_sandbox():
    without = msgspec.structs.replace(info(), has_sandbox_problem=True)
    line = status_area.render_status_line(ViewState(), without, 60, DARK).plain
    assert line.strip() == "ask · no sandbox · m · /src/project"
    assert (
        status_area.render_status_line(ViewState(), without, 16, DARK).plain == "ask · no sandbox"
    )


def test_the_lines_above_the_prompt_show_todos_tasks_queue_and_activity():
    view = ViewState(
        todos=(TodoItem("a", "completed"), TodoItem("b", "in_progress"), TodoItem("c")),
        tasks=(TaskLine("t1", "c1", "bash: serve"),),
        queued_messages=("later",),
        is_busy=True,
        activity=Activity("writing"),
        turn_usage=Usage(output=1_234),
    )
    status = info(turn_seconds=3.0)
    lines = [line.plain for line in status_area.render_activity(view, status, 60, DARK)]
    assert lines == [
        "▸ b",
        "☐ c",
        "  1 of 3 done",
        "◌ t1 bash: serve",
        "↳ later",
        "◐ writing · 3s · ↓ 1.2k · esc interrupts",
    ]
    assert status_area.render_activity(ViewState(), info(), 60, DARK) == []


def test_every_kind_of_activity_has_a_text():
    texts = [format_activity(Activity(kind)) for kind in get_args(ActivityKind)]
    assert all(texts)
    assert format_activity(Activity("running", "bash")) == "running bash"


def test_numbers_are_short():
    assert [format_count(n) for n in (5, 1_200, 150_000, 2_000_000)] == [
        *("5", "1.2k", "150k", "2M")
    ]
    assert [format_duration(s) for s in (5, 65, 3_700)] == ["5s", "1m 05s", "1h 01m"]
    assert [format_age(s) for s in (5, 65, 7_300, 200_000)] == [
        *("now", "1m ago", "2h ago", "2d ago")
    ]


def test_context_usage_names_every_part_in_words_of_the_user():
    items: list[Item] = [to_user_item("x" * 400), NoticeItem("y" * 400), SummaryItem("z" * 400, 3)]
    shown = format_context_usage(measure_context(items, 10_000, 100_000))
    for name in ("your messages", "notices to the model", "summary of earlier messages"):
        assert f"  {name}\n" in shown


def test_context_usage_names_memory_skills_and_servers():
    def work(text: str) -> str:
        return text

    sections = [PromptSection(name, "x" * 4_000) for name in ("identity", "memory", "skills")]
    names = ("read", "mcp__db__get", "mcp__db__put")
    head = estimate_head(sections, [tool(work, name=one, description="Works.") for one in names])
    assert head["MCP server db"] > head["tools"] > 0
    lines = format_context_usage(
        measure_context([to_user_item("x" * 4_000)], 10_000, 100_000, head)
    ).split("\n")
    shown = {line.rpartition("  ")[2] for line in lines[1:]}
    assert {"MCP server db", "memory files", "skills", "tools", "system prompt"} <= shown


def test_a_typed_path_of_a_picture_is_attached():
    Path("plans").mkdir()
    Path("plans/a.png").write_bytes(PNG)
    attachments = Attachments(Path.cwd())

    def attached(text: str) -> int:
        return len(attachments.build_item(text).content) - 1

    assert attached("what is in plans/a.png?") == 1
    assert attached(f"and {Path.cwd()}/plans/a.png, please") == 1
    assert attached("@plans/a.png is plans/a.png") == 1
    assert attached("write plans/new.png and see http://example.com/a.png") == 0


def test_context_usage_adds_up():
    lines = format_context_usage(
        measure_context([to_user_item("x" * 4_000)], 10_000, 100_000)
    ).split("\n")
    assert lines[0].endswith("10.0k of 100k tokens (10%)")
    assert [line.split()[-1] for line in lines[1:]] == ["tools", "messages", "free"]


def test_a_message_that_comes_back_keeps_its_attachments():
    attachments = Attachments(Path.cwd())
    image = Image("image/png", PNG)
    text = f"look {attachments.add_image(image)}and {attachments.add_paste('x' * 2_000)}"
    sent = attachments.build_item(text)
    attachments.clear()
    restored = attachments.restore(UserItem((*sent.content, Text("I ran `ls` myself"))))
    again = attachments.build_item(restored)
    assert [part for part in again.content if isinstance(part, Image)] == [image]
    assert "x" * 2_000 in again.text
    assert "I ran `ls` myself" in again.text


def test_two_programs_keep_the_messages_of_both(tmp_path: Path):
    file = tmp_path / "history.jsonl"
    one = PromptHistory(file)
    for number in range(2 * MAX_LINES - 1):
        one.add(f"one {number}")
    other = PromptHistory(file)
    other.add("of the other")
    one.add("makes the file")
    one.add("shorter")
    assert len(file.read_bytes().splitlines()) == MAX_LINES
    assert PromptHistory(file).lines[-3:] == ("of the other", "makes the file", "shorter")
