"""Stories of compaction: what is kept word for word, what is refused, what comes back."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import Agent, Transcript, Usage, tool
from treadle.context.compaction import Compactor
from treadle.context.compaction.compactor import get_token_limit
from treadle.context.token_estimator import TokenEstimator, count_chars
from treadle.core.contracts.hook import Block, HookPoint
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.policy import Allow, AllowAll, Ask, Deny, PermissionRequest, Verdict
from treadle.core.errors import ContextTooLong, Overloaded
from treadle.core.events import Notified
from treadle.core.retry import Retry
from treadle.core.steps import ApprovalRequest, Finished
from treadle.core.transcript import (
    AssistantItem,
    Image,
    Item,
    NoticeItem,
    SummaryItem,
    Text,
    ToolCall,
    ToolResultItem,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.state import fold_entries
from treadle.hooks import hook
from treadle.models import Say, Scripted
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool
from treadle.tools.builtin.conversation.ask import make_answer_output

WINDOW = 8_000
CARD = ModelCard("small", window=WINDOW, max_output=1_000)
FACT = "The release is called Ährenfeld-7; never change CHANGELOG.old."
TODO = "[ ] write the migration\n[x] read the code"


class StrictProvider(Scripted):
    """Counts three characters as a token and refuses what does not fit its window."""

    def __init__(self, rounds_a_turn: int = 1) -> None:
        super().__init__(self._answer, card=CARD)
        self._rounds = rounds_a_turn
        self.sizes: list[int] = []

    def _answer(self, request: ModelRequest) -> Say | ContextTooLong:
        assert find_violations(request.transcript) == []
        tokens = (count_chars(request.transcript) + len(request.system)) // 3
        self.sizes.append(tokens)
        if tokens > WINDOW - 1_000:
            return ContextTooLong(f"{tokens} tokens do not fit")
        used = Usage(tokens, 50, requests=1)
        last = request.transcript[-1]
        if isinstance(last, UserItem) and "todo" in last.text:
            return Say(calls=[("todo", {})], usage=used)
        if isinstance(last, UserItem) and "delete" in last.text:
            return Say(calls=[("rm", {"path": "/precious"})], usage=used)
        if isinstance(last, UserItem):
            return Say(calls=[("work", {"n": len(request.transcript)})], usage=used)
        return Say("Done with that. " + "x" * 200, usage=used)


@tool(effect="pure")
async def work(n: int) -> str:
    return f"line {n}\n" * 150


@tool(name="todo")
async def todo() -> str:
    return TODO


@tool
async def rm(path: str) -> str:
    raise AssertionError("denied calls are not run")


class NoDeleting:
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Deny("the user said: never delete") if request.tool.name == "rm" else Allow()

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        return None


def note_taker(said: str | Exception = "Goal: go on. Known: much.") -> Scripted:
    def answer(request: ModelRequest) -> str | Exception:
        return said

    return Scripted(answer, card=ModelCard("notes"))


def text_of(transcript: Transcript) -> str:
    return json.dumps([repr(item) for item in transcript], ensure_ascii=False)


async def test_after_500_turns_and_many_compactions_the_pins_are_there_word_for_word():
    model, store, witness = StrictProvider(), MemoryStore(), RecordingObserver()
    agent = Agent(
        model,
        [work, todo, rm],
        policy=NoDeleting(),
        mutators=[Compactor(note_taker())],
        observers=[witness],
        max_turns=10,
    )
    driver = agent.start(store=store)
    for turn in range(500):
        said = {2: FACT, 4: "make a todo list", 6: "delete it"}.get(turn, f"go {turn}")
        driver.submit(said)
        while not isinstance(step := await driver.next(), Finished):
            pass
        assert step.result.reason == "end_turn", step.result.error
    compactions = [e for e in witness.events_of(Notified) if e.text.startswith("compacted")]
    assert len(compactions) >= 10
    assert max(model.sizes) <= WINDOW - 1_000
    shown = text_of(driver.transcript)
    for pinned in (FACT, repr(TODO)[1:-1], "never delete", "/precious"):
        assert pinned in shown.replace("\\\\n", "\\n"), pinned
    assert sum(isinstance(item, SummaryItem) for item in driver.transcript) == 1

    raw = [item for _, item in witness.items]
    assert list(driver.history) == raw
    assert list(fold_entries(store.entries).history or ()) == raw
    assert driver.uncompact() is True
    assert list(driver.transcript) == raw
    assert list(fold_entries(store.entries).transcript) == raw
    assert driver.uncompact() is False


@pytest.mark.parametrize(
    "said", ["", "x" * 100_000, "☃" * 7, Overloaded("busy")], ids=["none", "more", "odd", "error"]
)
async def test_a_bad_summary_is_no_loop_and_no_loss(said: str | Exception):
    model, witness = StrictProvider(), RecordingObserver()
    notes = Compactor(note_taker(said))
    agent = Agent(model, [work], mutators=[notes], observers=[witness], retry=Retry(max_wait=0))
    driver = agent.start()
    for turn in range(60):
        driver.submit(FACT if turn == 3 else f"go {turn}")
        while not isinstance(step := await driver.next(), Finished):
            pass
        assert step.result.reason == "end_turn"
    assert FACT in text_of(driver.transcript)
    assert [item for _, item in witness.items] == list(driver.history)


async def test_the_provider_says_too_long_and_it_is_compacted_once_and_asked_again():
    model = Scripted(
        [ContextTooLong("too long"), "fine"], card=ModelCard("unmeasured", window=1_000_000)
    )
    witness = RecordingObserver()
    history: list[Item] = [to_user_item("begin")]
    for n in range(30):
        call = ToolCall(f"c{n}", "work", "{}")
        history += [
            AssistantItem((call,), "tool_use"),
            ToolResultItem(call.id, "work", (Text("y" * 5_000),)),
        ]
    history += [AssistantItem((Text("ok"),)), to_user_item("go on")]
    agent = Agent(model, mutators=[Compactor(note_taker())], observers=[witness])
    driver = agent.start(history=history)
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.text == "fine"
    assert count_chars(driver.transcript) < count_chars(history) / 3


async def test_by_hand_with_a_focus():
    notes = note_taker()
    driver = Agent(StrictProvider(), [work], mutators=[Compactor(notes)]).start(prompt="go")
    for _ in range(4):
        while not isinstance(await driver.next(), Finished):
            pass
        driver.submit("again")
    while not isinstance(await driver.next(), Finished):
        pass
    assert await driver.compact("the parser") is True
    assert "the parser" in notes.requests[0].transcript[0].text
    assert any(isinstance(item, SummaryItem) for item in driver.transcript)


async def test_a_hook_may_forbid_it():
    class Forbids:
        points: frozenset[HookPoint] = frozenset({"pre_compact"})

        async def run(self, hook_input):
            return Block("not now")

    driver = Agent(
        StrictProvider(), [work], mutators=[Compactor(note_taker())], hooks=[Forbids()]
    ).start(prompt="go")
    while not isinstance(await driver.next(), Finished):
        pass
    assert await driver.compact() is False


async def test_a_hook_hears_of_it_afterwards():
    heard: list[str] = []

    @hook("post_compact")
    def note(hook_input):
        heard.append(hook_input.data["trigger"])

    driver = Agent(
        StrictProvider(), [work], mutators=[Compactor(note_taker())], hooks=[note]
    ).start(prompt="go")
    while not isinstance(await driver.next(), Finished):
        pass
    before = len(heard)
    assert await driver.compact() is True
    assert heard[before:] == ["manual"]


async def test_a_window_too_small_for_the_fixed_part_is_said_at_once():
    tiny = ModelCard("tiny", window=100, max_output=10)
    model = Scripted(["x"], card=tiny)
    agent = Agent(model, instructions="word " * 500, mutators=[Compactor()])
    with pytest.raises(ContextTooLong, match="instructions and tools alone need"):
        await agent.run("hi")
    assert model.requests == []


def test_the_meter_learns_from_what_the_provider_counted():
    meter = TokenEstimator()
    view = Transcript([to_user_item("a" * 9_970)])
    first = meter.estimate_request(scene(view, []))
    second = meter.estimate_request(scene(view, [], used=Usage(5_000)))
    assert first != second
    assert second == pytest.approx(5_000, rel=0.01)


def scene(
    transcript: Transcript,
    told: list[str],
    *,
    point: MutationPoint = "before_model",
    card: ModelCard = CARD,
    used: Usage | None = None,
) -> MutationContext:
    async def consult() -> str:
        return ""

    return MutationContext(
        point, transcript, "s", "t", card, used or Usage(), 0, told.append, consult
    )


parts = st.one_of(
    st.builds(lambda n: Text("p" * n), st.integers(1, 20_000)),
    st.just(Image("image/png", b"\x89PNG")),
)


@st.composite
def histories(draw) -> list[Item]:
    items: list[Item] = [to_user_item("start " + "s" * draw(st.integers(0, 30_000)))]
    for number in range(draw(st.integers(0, 12))):
        calls = tuple(
            ToolCall(f"c{number}_{n}", "work", json.dumps({"x": "r" * draw(st.integers(0, 9_000))}))
            for n in range(draw(st.integers(0, 3)))
        )
        text = Text("t" * draw(st.integers(1, 8_000)))
        items.append(AssistantItem((text, *calls), "tool_use" if calls else "end_turn"))
        items += [ToolResultItem(call.id, "work", (draw(parts), Text("e"))) for call in calls]
        if draw(st.booleans()):
            items.append(NoticeItem("n" * draw(st.integers(1, 3_000))))
        if not calls or draw(st.booleans()):
            items.append(to_user_item("u" * draw(st.integers(1, 40_000))))
    return items


@settings(max_examples=120)
@given(histories(), st.integers(3_000, 30_000), st.booleans())
async def test_whatever_the_sizes_the_request_fits_and_every_law_holds(
    history: list[Item], window: int, has_model: bool
):
    card = ModelCard("any", window=window, max_output=window // 4)
    view = Transcript(history)
    compactor = Compactor(note_taker("short notes") if has_model else None)
    meter = TokenEstimator()
    for _ in range(3):
        shown = scene(view, [], card=card)
        new = await compactor.mutate(shown)
        if new is None:
            break
        assert find_violations(new) == []
        assert count_chars(new) < count_chars(view)
        view = new
    assert meter.tokens_for_chars(count_chars(view)) <= get_token_limit(scene(view, [], card=card))


async def test_calls_that_wait_to_be_run_are_never_cut():
    raw = json.dumps({"text": "x" * 30_000})
    history: list[Item] = [to_user_item("a" * 20_000), AssistantItem((ToolCall("c", "act", raw),))]
    view = Transcript(history)
    assert await Compactor().mutate(scene(view, [], point="on_request")) is None
    assert await Compactor().mutate(scene(view, [], point="context_too_long")) is None


async def test_pins_that_nearly_fill_the_window_do_not_compact_at_every_step():
    notes = note_taker()
    model = Scripted(
        lambda request: Say(calls=[("work", {"n": len(request.transcript)})]), card=CARD
    )
    agent = Agent(model, [work], mutators=[Compactor(notes)], max_turns=40)
    await agent.run("z" * int(0.83 * 3.5 * (WINDOW - 1_000)))
    assert len(notes.requests) <= 12


def test_a_compaction_does_not_spoil_the_measure_of_the_meter():
    meter = TokenEstimator()
    meter.estimate_request(scene(Transcript([to_user_item("a" * 30_000)]), []))
    small = Transcript([to_user_item("a" * 3_000)])
    meter.record_sent(count_chars(small))
    assert meter.estimate_request(scene(small, [], used=Usage(1_000))) == pytest.approx(
        1_000, rel=0.1
    )


async def test_a_tool_that_was_announced_late_is_still_known_afterwards():
    announced = NoticeItem("New tools; call them by `use_tool`: ...", kind="tools")
    history: list[Item] = [
        to_user_item("begin"),
        AssistantItem((Text("ok"),)),
        announced,
        to_user_item("go"),
    ]
    for n in range(30):
        history += [AssistantItem((Text("y" * 1_500),)), to_user_item(f"{n}")]
    compactor = Compactor(note_taker())
    for _ in range(2):
        new = await compactor.mutate(scene(Transcript(history), [], point="on_request"))
        assert new is not None
        assert announced in list(new)
        more: list[Item] = [AssistantItem((Text("z" * 9_000),)), to_user_item("more")]
        history = [*new, *more, *more]


async def test_what_the_user_allowed_edited_and_answered_survives_a_compaction():
    class Asks(AllowAll):
        async def decide(self, request: PermissionRequest) -> Verdict:
            return Ask("sure?") if request.tool.name == "put" else Allow()

    put = RecordingTool("put", effect="irreversible")
    ask = RecordingTool("ask", answer=lambda given: make_answer_output("Call it Ährenfeld."))
    work = [Say(calls=[("put", {"n": 1}), ("put", {"n": 2}), ("ask", {"question": "Name?"})])]
    talk = [*[Say("x" * 2_000) for _ in range(5)], Say("Notes.")]
    agent = Agent(Scripted([*work, *talk]), [put, ask], policy=Asks(), mutators=[Compactor()])
    driver = agent.start(prompt="go")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    request.approve(request.calls[0].id)
    request.approve(request.calls[1].id, arguments={"n": 22})
    for n in range(5):
        while not isinstance(await driver.next(), Finished):
            pass
        driver.submit(f"more {n}")
    assert await driver.compact() is True
    kept = "\n".join(item.text for item in driver.transcript if isinstance(item, NoticeItem))
    assert not any(isinstance(item, ToolResultItem) for item in driver.transcript)
    assert "(answer to: Name?) Call it Ährenfeld." in kept
    assert 'The user allowed this call: put {"n":1}' in kept
    assert 'It ran with: {"n":22}' in kept


class DenseProvider(Scripted):
    """Counts tokens as a function says, and refuses what does not fit its window."""

    def __init__(self, count: Callable[[str], int]) -> None:
        super().__init__(self._answer, card=CARD)
        self._count = count
        self.refused = 0

    def _answer(self, request: ModelRequest) -> Say | ContextTooLong:
        texts = [item.text for item in request.transcript]
        tokens = self._count("".join([request.system, *texts]))
        if tokens > WINDOW - 1_000:
            self.refused += 1
            return ContextTooLong(f"{tokens} tokens do not fit")
        return Say("好的", usage=Usage(tokens, 5, requests=1))


SCRIPTS: dict[str, tuple[str, Callable[[str], int]]] = {
    "Chinese": ("请把这个文件翻译成中文并保存。" * 120, len),
    "Burmese": ("မြန်မာဘာသာစကား" * 120, lambda text: len(text.encode()) // 2),
    "emoji": ("🧑‍🚀🚀🌍" * 250, lambda text: len(text.encode()) // 2),
    "base64": ("kJ8sQx0Vb2Yp7LmZ" * 120, lambda text: int(len(text) / 1.4)),
}


@pytest.mark.parametrize("script", SCRIPTS)
async def test_texts_that_need_many_tokens_never_end_a_session(script: str):
    text, count = SCRIPTS[script]
    model = DenseProvider(count)
    driver = Agent(model, mutators=[Compactor()]).start()
    for n in range(20):
        driver.submit(f"{n} {text}")
        step = await driver.next()
        assert isinstance(step, Finished)
        assert step.result.reason == "end_turn", step.result.error
    assert model.refused <= 1


@pytest.mark.parametrize("script", SCRIPTS)
async def test_one_long_text_that_needs_many_tokens_is_cut_to_what_fits(script: str):
    text, count = SCRIPTS[script]
    model = DenseProvider(count)
    driver = Agent(model, mutators=[Compactor()]).start()
    driver.submit("Hello")
    await driver.next()
    driver.submit(text * 6)
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.reason == "end_turn", step.result.error


def test_a_refusal_teaches_the_meter_and_does_not_use_an_older_measurement():
    meter = TokenEstimator()
    small, used = Transcript([to_user_item("a" * 970)]), Usage(300)
    meter.estimate_request(scene(small, []))
    meter.estimate_request(scene(small, [], used=used))
    large = small.append(to_user_item("b" * 15_000))
    meter.estimate_request(scene(large, [], used=used))
    refused = meter.estimate_request(scene(large, [], point="context_too_long", used=used))
    assert refused >= WINDOW


async def test_instructions_in_another_script_weigh_as_messages_do():
    tiny = ModelCard("tiny", window=1_000, max_output=10)
    model = Scripted(["x"], card=tiny)
    agent = Agent(model, instructions="请把这个文件" * 250, mutators=[Compactor()])
    with pytest.raises(ContextTooLong, match="instructions and tools alone need"):
        await agent.run("hi")
    assert model.requests == []
