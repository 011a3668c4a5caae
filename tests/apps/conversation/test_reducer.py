from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.apps.tui.events import after, blocks
from tests.work import count_work
from treadle.apps.conversation.block_text import format_call_title
from treadle.apps.conversation.state.blocks import (
    WORKING,
    WRITING,
    Activity,
    ChildProgress,
    CodeBlock,
    MarkdownBlock,
    NoteBlock,
    TaskLine,
    ThinkingBlock,
    ToolCallBlock,
    UserMessageBlock,
)
from treadle.apps.conversation.state.from_transcript import build_view
from treadle.apps.conversation.state.reducer import apply_event, apply_tool_result
from treadle.apps.conversation.state.view_state import ViewState, add_block, set_queued_messages
from treadle.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    ChildEvent,
    InputAccepted,
    ModelChanged,
    Notified,
    ReplyDiscarded,
    RequestStarted,
    RetryScheduled,
    RunFailed,
    TaskFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallBegan,
    ToolCallDelta,
    ToolCallRequested,
    ToolDetached,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
    TurnResult,
    TurnStarted,
    UsageUpdated,
    WarningRaised,
)
from treadle.core.transcript.content import Image, Text, Thinking, ToolCall
from treadle.core.transcript.items import (
    AssistantItem,
    CallOutcome,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.usage import Usage
from treadle.tools.builtin.conversation.todo import TodoItem

CALL = ToolCall("c1", "bash", '{"command":"ls"}')
CALLED = (
    (ToolCallBegan, "c1", "bash"),
    (ToolCallDelta, "c1", '{"command":"ls"}'),
    (ToolCallRequested, CALL),
)


def end(reason="end_turn", **more):
    return (TurnFinished, TurnResult("t", reason, **more))


def call_of(view: ViewState) -> ToolCallBlock:
    return next(block for block in view.blocks if isinstance(block, ToolCallBlock))


def test_what_the_person_says_opens_a_turn():
    view = after((TurnStarted,), (InputAccepted, to_user_item("hello")))
    assert blocks(view) == [UserMessageBlock("hello")]
    assert view.is_busy


def test_a_reply_grows_in_its_last_block_only():
    view = after((RequestStarted, "m"), (TextDelta, "One.\n\nTw"), (TextDelta, "o."))
    assert blocks(view) == [MarkdownBlock("One.\n"), MarkdownBlock("Two.")]


def test_a_reply_that_ends_with_a_closing_fence_shows_only_the_code():
    text = ((TextDelta, "```python\nx = 1\n"), (TextDelta, "```"))
    view = after((RequestStarted, "m"), *text, end())
    assert blocks(view)[:1] == [CodeBlock("python", "x = 1\n")]
    open_end = after((RequestStarted, "m"), (TextDelta, "```\nx = 1"), end())
    assert blocks(open_end)[:1] == [CodeBlock("", "x = 1\n")]


def test_what_the_engine_wrote_or_chose_is_not_shown_as_the_models_words():
    chosen = ToolCall("c1", "bash", CALL.raw, by="engine")
    shown = [
        NoteBlock("engine: The files here are a.py."),
        MarkdownBlock("This folder is a program.\n"),
        NoteBlock("engine: this call was chosen by the engine, not by the model"),
    ]
    live = after(
        (RequestStarted, "m"),
        (TextDelta, "The files here are a.py.", "engine"),
        (TextDelta, "This folder is a program.\n"),
        (ToolCallBegan, "c1", "bash"),
        (ToolCallRequested, chosen),
    )
    assert [block for block in blocks(live) if not isinstance(block, ToolCallBlock)] == shown
    parts = (
        Text("The files here are a.py.", "engine"),
        Text("This folder is a program.\n"),
        chosen,
    )
    later = build_view([AssistantItem(parts)])
    assert [block for block in blocks(later) if not isinstance(block, ToolCallBlock)] == shown


def test_thinking_and_text_are_separate_blocks():
    view = after((ThinkingDelta, "hm"), (ThinkingDelta, "m"), (TextDelta, "So."), end())
    assert blocks(view) == [ThinkingBlock("hmm"), MarkdownBlock("So.")]


def test_a_call_goes_from_writing_to_done():
    view = after((TurnStarted,), *CALLED[:-1])
    assert call_of(view).state == "writing"
    view = after((TurnStarted,), *CALLED)
    assert (call_of(view).state, call_of(view).argument_chars) == ("waiting", len(CALL.raw))
    view = after((ToolStarted, "c1", "bash", "[bash: ls]"), view=view)
    assert (call_of(view).state, call_of(view).summary) == ("running", "bash: ls")
    assert view.activity == Activity("running", "bash")
    view = after((ToolProgress, "c1", "a.py\n"), view=view)
    assert call_of(view).progress == "a.py\n"
    view = after((ToolFinished, "c1", "bash", "a.py", "", False, False), view=view)
    assert (call_of(view).state, call_of(view).result) == ("done", "a.py")


def test_the_whole_answer_comes_with_the_item():
    view = after(*CALLED, (ToolFinished, "c1", "bash", "a...", "", False, True))
    view = apply_tool_result(
        view, ToolResultItem("c1", "bash", (Text("all of it"),), full_output="/x")
    )
    assert (call_of(view).result, call_of(view).full_output) == ("all of it", "/x")
    assert view.open_calls == {}


def test_an_approval_is_shown_at_its_call():
    asked = (ApprovalRequired, CALL, "[bash: ls]", "no rule allows it")
    view = after(*CALLED, asked)
    assert (call_of(view).state, view.activity) == ("asking", Activity("approval"))
    denied = after((ApprovalResolved, "c1", "deny", "not now"), view=view)
    assert (call_of(denied).state, call_of(denied).reason) == ("denied", "not now")
    failed = (ToolFinished, "c1", "bash", "denied", "", True, False)
    assert call_of(after(failed, view=denied)).state == "denied"
    assert call_of(after((ApprovalResolved, "c1", "allow"), view=view)).state == "waiting"


def test_an_edited_call_shows_what_ran_live_and_after_a_resume():
    edited = {"approval": {"by": "user", "edited": '{"command":"echo edited"}'}}
    result = ToolResultItem("c1", "bash", (Text("edited"),), data=edited)
    live = after(*CALLED, (ToolStarted, "c1", "bash", "[bash: echo edited]"))
    for view in (apply_tool_result(live, result), build_view([AssistantItem((CALL,)), result])):
        assert format_call_title(call_of(view)) == "bash (edited): echo edited"
        assert call_of(view).raw == '{"command":"echo edited"}'


def test_the_outcome_of_a_call_is_its_state():
    states: dict[CallOutcome, str] = {
        "denied": "denied",
        "interrupted": "stopped",
        "unknown": "failed",
    }
    for outcome, state in states.items():
        item = ToolResultItem("c1", "bash", (Text("x"),), is_error=True, outcome=outcome)
        assert call_of(apply_tool_result(after(*CALLED), item)).state == state


def test_messages_that_wait_are_shown_until_they_are_taken():
    view = set_queued_messages(after((TurnStarted,)), [to_user_item("first"), to_user_item("2nd")])
    assert view.queued_messages == ("first", "2nd")
    view = after((InputAccepted, UserItem((Text("first"),), steered=True)), view=view)
    assert set_queued_messages(view, [to_user_item("2nd")]).queued_messages == ("2nd",)
    assert blocks(view)[-1] == UserMessageBlock("first", steered=True)


def test_an_attempt_that_failed_half_way_is_void_and_its_reason_stays():
    view = after(
        (TurnStarted,),
        (InputAccepted, to_user_item("hi")),
        (RequestStarted, "m"),
        (TextDelta, "Half a"),
        (ToolCallBegan, "c1", "bash"),
        (RetryScheduled, 1, 2.0, "overloaded"),
        (ReplyDiscarded, 6),
        (RequestStarted, "m"),
        (TextDelta, "Whole."),
    )
    assert blocks(view) == [
        UserMessageBlock("hi"),
        NoteBlock("overloaded · retry in 2 s", "warning", attempt=1),
        MarkdownBlock("Whole."),
    ]


def test_all_retries_of_a_call_are_one_line():
    view = after(
        (TurnStarted,),
        (InputAccepted, to_user_item("hi")),
        (RequestStarted, "m"),
        (RetryScheduled, 1, 2.0, "overloaded"),
        (ReplyDiscarded, 0),
        (RequestStarted, "m"),
        (TextDelta, "Half a"),
        (RetryScheduled, 2, 4.0, "the stream broke"),
        (ReplyDiscarded, 6),
        (RequestStarted, "m"),
        (TextDelta, "Whole."),
    )
    note = "the stream broke · attempt 2 failed · retry in 4 s"
    assert blocks(view) == [
        UserMessageBlock("hi"),
        NoteBlock(note, "warning", attempt=2),
        MarkdownBlock("Whole."),
    ]


def test_the_end_of_a_turn_stops_what_was_open():
    view = after((TurnStarted,), *CALLED, (ToolStarted, "c1", "bash", "[bash]"), end("aborted"))
    assert call_of(view).state == "stopped"
    assert blocks(view)[-1] == NoteBlock("interrupted", "warning")
    assert not view.is_busy


def test_every_terminal_reason_but_end_turn_is_shown():
    assert len(after(end()).blocks) == 0
    for reason in ("max_turns", "budget_exceeded", "goal_not_met", "refused", "aborted"):
        assert isinstance(blocks(after(end(reason)))[-1], NoteBlock)
    not_done = after(end("refused", metadata={"detail": "nothing was changed"}))
    assert blocks(not_done) == [NoteBlock("nothing was changed", "warning")]
    failed = after((RunFailed, "no key", "AccessDenied", TurnResult("t", "error")))
    assert blocks(failed) == [NoteBlock("no key", "error")]


def test_a_call_that_is_allowed_waits_until_the_other_questions_are_answered():
    second = ToolCall("c2", "bash", '{"command":"ls"}')
    asked = after(
        (ToolCallRequested, CALL),
        (ToolCallRequested, second),
        (ApprovalRequired, CALL, "[bash: ls]", "it runs a command"),
        (ApprovalRequired, second, "[bash: ls]", "it runs a command"),
        (ApprovalResolved, "c1", "allow", "user"),
    )
    assert [call.state for call in blocks(asked) if isinstance(call, ToolCallBlock)] == [
        "waiting",
        "asking",
    ]
    assert asked.activity == Activity("approval")
    assert after((ApprovalResolved, "c2", "allow", "user"), view=asked).activity == WORKING


def test_a_detached_call_is_a_task_until_it_finishes():
    view = after(
        (TurnStarted,),
        *CALLED,
        (ToolStarted, "c1", "bash", "[bash: serve]"),
        (ToolDetached, "c1", "t1"),
        (ToolFinished, "c1", "bash", "Running as task t1", "", False, False),
        end(),
    )
    assert view.tasks == (TaskLine("t1", "c1", "bash: serve"),)
    view = after((TaskFinished, "t1", "bash", "bye", False), view=view)
    assert view.tasks == ()
    assert blocks(view)[-1] == NoteBlock("task t1 (bash: serve) finished", "good")


def test_a_child_shows_at_the_call_that_started_it():
    def child(event):
        return (ChildEvent, "c1", event)

    view = after(
        *CALLED,
        child(ToolStarted("s2", "t2", 1, "x1", "grep", "[grep: foo]")),
        child(UsageUpdated("s2", "t2", 2, "m", Usage(), Usage(input=900, output=100))),
        child(TextDelta("s2", "t2", 3, "So")),
    )
    assert call_of(view).child == ChildProgress(1, 1_000, WRITING, ("grep: foo",))


def test_the_todo_list_is_what_was_written_last():
    raw = (
        '{"todos":[{"content":"look","status":"completed"},{"content":"do","status":"in_progress"},'
        '{"content":"check","status":"pending"}]}'
    )
    asked = after((ToolCallRequested, ToolCall("c2", "todo", raw)))
    assert asked.todos == (), "it may be refused"
    refused = after((ToolFinished, "c2", "todo", "no", "", True), view=asked)
    assert refused.todos == ()
    view = after((ToolFinished, "c2", "todo", "ok"), view=asked)
    todos = (TodoItem("look", "completed"), TodoItem("do", "in_progress"), TodoItem("check"))
    assert view.todos == todos
    assert (
        after((ToolCallRequested, ToolCall("c3", "todo", '{"todos":7}')), view=view).todos == todos
    )


def test_usage_adds_up_and_the_window_is_the_last_request():
    one, two = Usage(input=100, output=10, cost=0.1), Usage(input=150, output=20, cost=0.2)
    view = after((UsageUpdated, "m", one, one), (UsageUpdated, "m", two, one + two))
    assert (view.context_tokens, view.usage.total) == (170, 280)


def test_what_child_agents_use_is_counted_for_the_session_and_not_as_its_context():
    one, two = Usage(input=100, requests=1, cost=0.1), Usage(input=50, requests=1, cost=0.2)
    in_grandchild = UsageUpdated("g", "t", 0, "m", two, two)
    view = after(
        (UsageUpdated, "m", one, one),
        (ChildEvent, "c1", UsageUpdated("k", "t", 0, "m", two, two)),
        (ChildEvent, "c1", ChildEvent("k", "t", 1, "k1", in_grandchild)),
    )
    assert view.usage == one + two + two
    assert view.context_tokens == 100


def test_a_note_does_not_cut_the_text_above_it_that_still_grows():
    view = after(TextDelta("s", "t", 1, "One\n\n```py\na = "))
    view = add_block(view, NoteBlock("note"))
    for text in ("1\n```\nTw", "o"):
        view = apply_event(view, TextDelta("s", "t", 2, text))
    assert blocks(view) == [
        MarkdownBlock("One\n"),
        CodeBlock("py", "a = 1\n"),
        NoteBlock("note"),
        MarkdownBlock("Two"),
    ]


def test_a_call_that_gets_another_id_while_it_is_written_is_one_block():
    view = after(
        ToolCallBegan("s", "t", 1, "c1", "bash"),
        ToolCallRequested("s", "t", 2, ToolCall("c1_1", "bash", "{}")),
        ToolFinished("s", "t", 3, "c1_1", "bash", "fine"),
    )
    (call,) = blocks(view)
    assert isinstance(call, ToolCallBlock)
    assert (call.call_id, call.state) == ("c1_1", "done")


REPLY = "One two.\n\nThree\n\n```py\na = 1\n```\nFour"


@given(st.lists(st.integers(0, len(REPLY)), max_size=20), st.integers(0, 2**20))
def test_a_reply_with_notes_between_its_deltas_is_shown_whole(cuts, notes):
    edges = [0, *sorted(cuts), len(REPLY)]
    view = ViewState()
    for number, (start, end) in enumerate(pairwise(edges)):
        view = apply_event(view, TextDelta("s", "t", 1, REPLY[start:end]))
        if notes >> number & 1:
            view = add_block(view, NoteBlock("note"))
    shown = [block.text for block in blocks(view) if isinstance(block, MarkdownBlock | CodeBlock)]
    assert "".join("".join(shown).split()) == "Onetwo.Threea=1Four"


def test_what_the_engine_says_is_a_note():
    view = after((Notified, "a"), (WarningRaised, "b"), (ModelChanged, "x", "y", "overloaded"))
    assert [type(block) for block in blocks(view)] == [NoteBlock, NoteBlock, NoteBlock]
    assert view.model == "y"


def test_a_model_that_was_chosen_is_no_failure_of_the_other():
    view = after((ModelChanged, "x", "y", "chosen for the next request", True))
    assert (blocks(view), view.model) == ([], "y")


def test_the_result_of_an_unknown_call_changes_nothing():
    view = after((TextDelta, "x"))
    assert list(
        apply_tool_result(view, ToolResultItem("?", "bash", (Text("y"),))).blocks
    ) == blocks(view)
    assert after((ToolProgress, "?", "y"), view=view) == view


def test_a_resumed_session_looks_as_it_did():
    items: list[Item] = [
        UserItem((Text("fix it"), Image("image/png", b"xx"))),
        AssistantItem((Thinking("hm"), Text("I look.\n\nThen:"), CALL), "tool_use", "m"),
        ToolResultItem("c1", "bash", (Text("a.py"),)),
        AssistantItem((Text("Done."),), model="m", usage=Usage(input=50, output=5)),
        NoticeItem("stop", kind="interrupted"),
        SummaryItem("sum", replaces=4),
    ]
    view = build_view(items)
    kinds = [type(block).__name__ for block in blocks(view)]
    assert kinds == [
        "UserMessageBlock",
        "ThinkingBlock",
        "MarkdownBlock",
        "MarkdownBlock",
        "ToolCallBlock",
        "MarkdownBlock",
        "NoteBlock",
        "NoteBlock",
    ]
    assert (call_of(view).state, call_of(view).result) == ("done", "a.py")
    assert (view.context_tokens, view.open_calls) == (55, {})


def test_a_task_of_a_resumed_session_runs_until_a_notice_tells_its_end():
    data = {"task_id": "t1", "summary": "[bash: serve]"}
    items: list[Item] = [
        AssistantItem((CALL,), "tool_use", "m"),
        ToolResultItem("c1", "bash", (Text("Running as task t1."),), data=data),
    ]
    view = build_view(items)
    assert (call_of(view).state, view.tasks) == (
        "background",
        (TaskLine("t1", "c1", "bash: serve"),),
    )
    for state, call_state, text in (
        ("done", "done", "task t1 (bash: serve) finished"),
        ("cancelled", "stopped", "task t1 (bash: serve) was stopped"),
        ("lost", "interrupted", "task t1 (bash: serve) is lost: the program that ran it ended"),
    ):
        notice = NoticeItem("it ended", kind="task", data={"task_id": "t1", "state": state})
        ended = build_view([*items, notice])
        assert (call_of(ended).state, ended.tasks, ended.open_calls) == (call_state, (), {})
        note = blocks(ended)[-1]
        assert isinstance(note, NoteBlock)
        assert note.text == text


def test_an_event_costs_the_same_in_a_long_session():
    def cost(view: ViewState) -> int:
        with count_work() as work:
            for number in range(200):
                view = apply_event(view, TextDelta("s", "t", number, "word "))
        return work.calls

    long = after((TurnStarted,))
    for number in range(2_000):
        call = ToolCall(f"c{number}", "bash", "{}")
        long = after((ToolCallRequested, call), view=long)
        long = apply_tool_result(long, ToolResultItem(call.id, "bash", (Text("x"),)))
    for _ in range(2_000):
        long = after((TextDelta, "A paragraph of some words that is over soon.\n\n"), view=long)
    assert len(long.blocks) > 4_000
    assert cost(long) < 1.2 * cost(ViewState())


def test_a_call_without_a_result_of_an_earlier_process_is_interrupted():
    reply = AssistantItem((ToolCall("call-1", "bash", '{"command":"make"}'),))
    [call] = build_view([reply]).blocks
    assert isinstance(call, ToolCallBlock)
    assert call.state == "interrupted"


def test_the_output_of_an_interrupted_call_is_the_same_after_a_reload():
    result = ToolResultItem(
        CALL.id, CALL.name, (Text("interrupted"),), is_error=True, outcome="interrupted",
        display="line 1\nline 2\n",
    )  # fmt: skip
    live = after((TurnStarted,), *CALLED, (ToolProgress, CALL.id, "line 1\nline 2\n"))
    for view in (apply_tool_result(live, result), build_view([AssistantItem((CALL,)), result])):
        assert (call_of(view).state, call_of(view).progress) == ("stopped", "line 1\nline 2\n")
        assert call_of(view).display == ""
