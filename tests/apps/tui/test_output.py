"""What is shown of commands, of thinking, of code and of links."""

from rich.text import Text
from textual.strip import Strip

from tests.apps.tui.harness import running_app, scripted
from treadle.apps.conversation.conversation import ThoughtClock
from treadle.apps.conversation.state.blocks import CodeBlock, ThinkingBlock, ToolCallBlock
from treadle.apps.conversation.state.from_transcript import build_view
from treadle.apps.conversation.state.reducer import apply_event, apply_tool_result
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.tui.render.links import find_links
from treadle.apps.tui.render.palette import select_palette
from treadle.apps.tui.render.render import render_block
from treadle.apps.tui.widgets.transcript import find_code
from treadle.core.events import (
    ReplyDiscarded,
    RequestStarted,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from treadle.core.transcript import AssistantItem
from treadle.core.transcript.content import Text as TextPart
from treadle.core.transcript.items import ToolResultItem
from treadle.models.scripted import Say

PALETTE = select_palette("dark")
CODE = "".join(f"line_{number} = {number}\n" for number in range(100))
REPLY = f"Two pieces:\n\n```python\n{CODE}```\n\nand\n\n```sh\nmake all\n```\n\nDone."


def shown(block: object, width: int = 80) -> str:
    return "\n".join(line.plain for line in render_block(block, width, PALETTE))  # type: ignore[arg-type]


def test_a_running_command_shows_its_last_lines_and_a_finished_one_too():
    running = ToolCallBlock("c", "bash", "running", progress="one\ntwo\nthree\nfour\n  5%\r 60%\r")
    assert shown(running).split("\n")[1:] == ["  three", "  four", "   60%"]
    result = "\n".join(f"line {number}" for number in range(40))
    done = ToolCallBlock("c", "bash", "done", summary="bash: make", result=result)
    assert shown(done).split("\n") == [
        "● bash make  40 lines",
        "  line 37",
        "  line 38",
        "  line 39",
    ]
    one_line = ToolCallBlock("c", "bash", "done", summary="bash: make", result="ok")
    assert shown(one_line) == "● bash make  ok"
    file = ToolCallBlock("c", "read", "done", summary="read: a.txt", result=result)
    assert shown(file) == "● read a.txt  40 lines"
    assert all(len(line) <= 20 for line in shown(done, 20).split("\n"))


def test_an_interrupted_command_still_shows_its_last_lines():
    view = apply_event(ViewState(), ToolStarted("s", "t", 0, "c", "bash", "bash: make"))
    view = apply_event(view, ToolProgress("s", "t", 1, "c", "one\ntwo\n"))
    stopped = ToolFinished("s", "t", 2, "c", "bash", "interrupted", outcome="interrupted")
    view = apply_event(view, stopped)
    item = ToolResultItem("c", "bash", (TextPart("interrupted"),), outcome="interrupted")
    view = apply_tool_result(view, item)
    lines = shown(view.blocks[0]).split("\n")
    assert lines[0].endswith("bash make  interrupted")
    assert lines[1:] == ["  one", "  two"]


def test_the_work_for_a_piece_of_output_does_not_grow_with_the_piece():
    view = apply_event(ViewState(), ToolStarted("s", "t", 0, "c", "bash", "bash: yes"))
    view = apply_event(view, ToolProgress("s", "t", 1, "c", "y\n" * 1_000_000 + "end"))
    call = view.blocks[0]
    assert isinstance(call, ToolCallBlock)
    assert call.progress.endswith("y\nend")
    assert len(call.progress) == 4_000


def test_thinking_is_folded_with_its_time_and_its_length():
    now = [100.0]
    clock, view = ThoughtClock(lambda: now[0]), ViewState()

    def on(event: object, seconds: float = 0.0) -> None:
        nonlocal view
        now[0] += seconds
        view = clock.update(apply_event(view, event), event)  # type: ignore[arg-type]

    on(RequestStarted("s", "t", 0, "model", 1))
    on(ThinkingDelta("s", "t", 1, "Now I think "))
    on(ThinkingDelta("s", "t", 2, "about it. " * 500), 4.0)
    on(ThinkingDelta("s", "t", 3, "And again."), 8.0)
    assert shown(view.blocks[0]).startswith("✻ Now I think about it.")
    on(TextDelta("s", "t", 4, "Well"))
    assert shown(view.blocks[0]).startswith("✻ thought for 12s, 1,005 words · Now I think about")
    assert shown(view.blocks[1]) == ""  # a long thinking is several blocks
    on(ReplyDiscarded("s", "t", 5, 4))
    on(ThinkingDelta("s", "t", 6, "Once more"))
    on(TextDelta("s", "t", 7, "Well"))
    assert shown(view.blocks[0]) == "✻ thought, 2 words · Once more"
    assert shown(ThinkingBlock("Once more", words=2)) == "✻ thought, 2 words · Once more"


def test_the_code_of_a_block_is_whole_and_that_of_a_reply_is_a_list():
    view = build_view([AssistantItem((TextPart(REPLY),))])
    blocks = [view.blocks[index] for index in range(len(view.blocks))]
    code = [index for index, block in enumerate(blocks) if isinstance(block, CodeBlock)]
    assert len(code) > 2  # the long one is several blocks
    assert find_code(view, code[0]) == find_code(view, code[1]) == [CODE]
    assert find_code(view, 0) == [CODE, "make all\n"]


def test_addresses_are_links_and_other_schemes_are_not():
    text = "See https://example.org/a_(b), (http://example.org/c). And <https://example.org/d>!"
    assert find_links(text) == [
        "https://example.org/a_(b)",
        "http://example.org/c",
        "https://example.org/d",
    ]
    reply = "[here](https://example.org/x) https://example.org/y [not](javascript:alert(1))"
    view = build_view([AssistantItem((TextPart(reply),))])
    (line,) = render_block(view.blocks[0], 120, PALETTE)
    links = {span.style.link for span in line.spans if not isinstance(span.style, str)}
    assert links == {"https://example.org/x", "https://example.org/y", None}


async def test_keys_copy_code_and_open_links(monkeypatch):
    reply = f"{REPLY}\n\nSee https://example.org/one."
    copied: list[str] = []
    opened: list[str] = []
    async with running_app(monkeypatch, scripted([reply])) as on:
        monkeypatch.setattr(on.app, "copy_to_clipboard", copied.append)
        monkeypatch.setattr(on.app, "open_url", opened.append)
        await on.send("show me")
        await on.sees("https://example.org/one")
        await on.idle()
        strips: list[Strip] = on.app.screen._compositor.render_strips(on.app.size)
        assert "\x1b]8;" in "".join(strip.render(on.app.console) for strip in strips)
        await on.press("tab", "o")
        await on.until(lambda: opened == ["https://example.org/one"])
        await on.press("c")
        await on.sees("Copy which code?")
        await on.press("down", "enter")
        await on.until(lambda: copied == ["make all\n"])
        await on.press("up", "up", "c")
        await on.until(lambda: copied[1:] == ["make all\n"])
        await on.press("y")
        await on.until(lambda: copied[2:] == ["make all"])


async def test_the_output_of_a_command_is_shown_while_it_runs_and_after(monkeypatch):
    command = "for n in 1 2 3 4 5 6; do echo out $n; done; while ! test -e stop; do sleep .05; done"
    script: list[Say | str] = [Say(calls=[("bash", {"command": command})]), "Done."]
    async with running_app(
        monkeypatch, scripted(script), flags={"permission_mode": "bypass"}
    ) as on:
        await on.send("go")
        await on.sees("  out 6")
        assert "out 3" not in on.screen()
        (on.folder / "stop").touch()
        await on.sees("Done.")
        await on.idle()
        assert "6 lines\n  out 4\n  out 5\n  out 6" in on.screen()
        await on.press("ctrl+o")
        await on.sees("  out 1")


def test_the_preview_keeps_no_colour_codes():
    coloured = ToolCallBlock("c", "bash", "done", result="\x1b[31mred\x1b[0m\nplain")
    lines = render_block(coloured, 40, PALETTE)
    assert [line.plain for line in lines][1:] == ["  red", "  plain"]
    assert all(isinstance(line, Text) for line in lines)
