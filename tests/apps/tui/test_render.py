import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from treadle.apps.conversation.block_text import is_diff
from treadle.apps.conversation.diff_rows import count_changes
from treadle.apps.conversation.state import markdown_stream
from treadle.apps.conversation.state.blocks import (
    THINKING,
    Activity,
    ChildProgress,
    CodeBlock,
    MarkdownBlock,
    NoteBlock,
    ShellBlock,
    ThinkingBlock,
    ToolCallBlock,
    UserMessageBlock,
    ViewBlock,
)
from treadle.apps.tui.render import markdown, render
from treadle.apps.tui.render.palette import DARK, LIGHT, NONE, select_palette

DIFF = """\
--- a/x.py
+++ b/x.py
@@ -1,3 +1,3 @@
 one
-two
+three
 four"""


def shown(block: ViewBlock, width: int = 60, *, is_open: bool = False) -> list[str]:
    return [
        line.plain.rstrip() for line in render.render_block(block, width, DARK, is_expanded=is_open)
    ]


def test_a_call_is_one_line_and_opens_to_all_of_it():
    call = ToolCallBlock("c", "grep", "done", "grep: def", '{"pattern":"def"}', result="a\nb\nc")
    assert shown(call) == ["● grep def  3 lines"]
    assert shown(call, is_open=True) == ["● grep def  3 lines", "  a", "  b", "  c"]


def test_a_tab_in_the_result_of_a_call_does_not_move_the_cursor():
    call = ToolCallBlock("c", "read", "done", "read: AGENTS.md", "{}", result="1\t# Rules")
    assert shown(call) == ["● read AGENTS.md  1   # Rules"]
    assert markdown.make_printable(Text("a\tb")).plain == "a b"


def test_a_plan_is_named_by_its_title():
    raw = '{"plan":"# Rename it\\n\\n## Found\\n- a.py"}'
    assert shown(ToolCallBlock("c", "present_plan", "denied", raw=raw)) == [
        "⊘ present_plan Rename it  denied"
    ]


def test_a_call_that_was_resumed_has_no_summary_and_is_named_by_its_arguments():
    call = ToolCallBlock("c", "read", "done", raw='{"file_path":"a.py","limit":3}', result="1 line")
    assert shown(call) == ["● read a.py  1 line"]


@pytest.mark.parametrize(
    ("state", "sign"),
    [("writing", "○"), ("waiting", "…"), ("asking", "?"), ("running", "◐"), ("failed", "✗"),
     ("denied", "⊘"), ("background", "◌"), ("stopped", "◦")],
)  # fmt: skip
def test_a_sign_shows_the_state_of_a_call_not_colour_alone(state, sign):
    assert shown(ToolCallBlock("c", "bash", state, "bash: ls"))[0].startswith(sign)


def test_the_name_of_an_attachment_is_shown_whole():
    message = UserMessageBlock("look", attachments=("the output of a command (558 characters)",))
    assert shown(message, 32) == [
        "› look",
        "  [the output of a command (558",
        "  characters)]",
    ]


def test_a_table_of_a_command_stands_apart_from_other_notes():
    line, table = NoteBlock("one line"), NoteBlock("a  1\nb  2")
    assert render.is_tight(line, line)
    assert not render.is_tight(table, line)
    assert not render.is_tight(line, table)


def test_why_a_call_failed_is_below_it_if_the_line_is_too_short():
    reason = "error: 10.0.0.1 is a private address, which no rule allows"
    call = ToolCallBlock("c", "web_fetch", "failed", "web_fetch: http://10.0.0.1/", result=reason)
    assert shown(call, 100) == [f"✗ web_fetch http://10.0.0.1/  {reason}"]
    assert shown(call, 42) == [
        "✗ web_fetch http://10.0.0.1/",
        "  error: 10.0.0.1 is a private address,",
        "  which no rule allows",
    ]
    assert shown(call, 16)[-1].endswith("…")
    assert len(shown(call, 16)) == 4
    done = ToolCallBlock("c", "ls", "done", "ls: .", result="a result of a few more words")
    assert shown(done, 40) == ["● ls .  a result of a few more words"]


def test_an_edit_shows_its_diff_with_numbers_and_context():
    call = ToolCallBlock("c", "edit", "done", "edit: x.py", display=DIFF)
    assert shown(call) == [
        "● edit x.py  +1 -1",
        "     1   one",
        "     2 - two",
        "     2 + three",
        "     3   four",
    ]


def test_a_long_diff_is_cut_until_it_is_opened():
    long = "--- a/x\n+++ b/x\n@@ -0,0 +1,90 @@\n" + "\n".join(f"+{n}" for n in range(90))
    call = ToolCallBlock("c", "write", "done", "write: x", display=long)
    assert shown(call)[-1].endswith("more lines")
    assert len(shown(call, is_open=True)) == 91


def test_a_running_child_shows_what_it_does():
    child = ChildProgress(3, 12_300, Activity("running", "grep: foo"))
    call = ToolCallBlock("c", "task", "running", "task: look", child=child)
    assert shown(call, 80) == ["◐ task look  3 calls · 12.3k tokens · grep: foo"]
    thinking = msgspec.structs.replace(call, child=ChildProgress(1, activity=THINKING))
    assert shown(thinking) == ["◐ task look  1 call · thinking"]


def test_a_thought_is_one_line_until_it_is_opened():
    thought = ThinkingBlock("first I think\nthen I go on thinking for a while")
    assert shown(thought, 30) == ["✻ first I think then I go on …"]
    assert len(shown(thought, 30, is_open=True)) > 1
    assert shown(ThinkingBlock("more", is_continuation=True)) == []


def test_a_long_message_is_folded():
    said = UserMessageBlock("\n".join(map(str, range(50))))
    assert shown(said)[-1] == "  … 38 more lines"
    assert len(shown(said, is_open=True)) == 50


def test_a_command_of_ones_own_shows_its_end_and_its_exit_code():
    shell = ShellBlock("make", "\n".join(map(str, range(20))), 2, is_finished=True)
    lines = shown(shell)
    assert (lines[0], lines[-1]) == ("$ make", "  exit code 2")


def test_nothing_that_a_model_or_a_tool_wrote_speaks_to_the_terminal():
    evil = "\x1b]0;title\x07\x1b[31mred\x9b2J\u202eabc\rX"
    blocks: list[ViewBlock] = [
        *(MarkdownBlock(evil), CodeBlock("", evil), NoteBlock(evil), UserMessageBlock(evil)),
        *(ShellBlock(evil, evil), ThinkingBlock(evil)),
        ToolCallBlock("c", "x", "done", result=evil),
    ]
    for block in blocks:
        for line in render.render_block(block, 80, DARK, is_expanded=True):
            text = markdown.make_printable(line).plain
            assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}


MARKDOWN = st.lists(
    st.sampled_from(
        ["# Head", "plain words that wrap", "- a\n- b\n  - c", "1. x\n2. y", "> quote", "---",
         "| a | b |\n|---|---|\n| one | two |", "`code` **bold** *it* [l](http://x)", "日本語 🙂",
         "```py\nx = 1\n```", "    indented", "<b>html</b>", "![alt](u)", "~~gone~~"]
    ),
    max_size=6,
)  # fmt: skip


@given(MARKDOWN, st.integers(1, 100))
def test_no_line_is_wider_than_the_screen(parts, width):
    room = max(width, render.GUTTER_WIDTH + markdown.MIN_WIDTH)
    for block in markdown_stream.split_markdown("\n\n".join(parts)):
        for line in render.render_block(block, width, DARK):
            assert line.cell_len <= room or "│" in line.plain or _narrow(line.plain, width)


def _narrow(text: str, width: int) -> bool:
    """Below this width lines are only cut, by the transcript widget."""
    return width < 24


def test_lists_keep_their_marks_and_depth():
    lines = markdown.render_markdown("1. one\n2. two\n   - deep\n", 40, DARK)
    assert [line.plain for line in lines] == ["1. one", "2. two", "   • deep"]


def test_a_table_is_columns():
    lines = markdown.render_markdown("| a | bb |\n|---|---|\n| one | two |\n", 40, DARK)
    assert [line.plain for line in lines] == ["a    bb", "───  ───", "one  two"]


def test_the_lines_of_a_diff_are_counted():
    assert count_changes(DIFF) == (1, 1)
    assert is_diff(DIFF)
    assert not is_diff("--- nothing")


def test_the_theme_is_what_was_chosen_or_what_the_terminal_says():
    assert select_palette("light", {}) is LIGHT
    assert select_palette("", {"NO_COLOR": "1"}) is NONE
    assert select_palette("light", {"NO_COLOR": "1"}) is NONE
    assert select_palette("", {"COLORFGBG": "0;15"}) is LIGHT
    assert select_palette("nonsense", {}) is DARK


def test_a_table_keeps_the_alignment_of_its_columns():
    text = "| name | size | x |\n|:--|--:|:-:|\n| a | 7 | yes |\n| b | 1200 | n |\n"
    lines = [line.plain for line in markdown.render_markdown(text, 40, DARK)]
    assert lines == ["name  size   x", "────  ────  ───", "a        7  yes", "b     1200   n"]
