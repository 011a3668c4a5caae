"""The view of a journal is the fold of its entries, however little of it is held in memory."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.entries import (
    ApprovalDecision,
    ChildUsageRecorded,
    EarlyResult,
    Entry,
    InputMoved,
    InputQueued,
    Intent,
    ItemAdded,
    Quarantined,
    Rewound,
    Suspended,
    TurnBegan,
    TurnEnded,
    Uncompacted,
    UsageRecorded,
    ViewRewritten,
    WakeCondition,
)
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.state import fold_entries
from treadle.core.transcript.usage import Usage
from treadle.sessions import Journal
from treadle.sessions.log.entry_outline import outline_entry
from treadle.sessions.log.journal import read_entries
from treadle.sessions.log.reader import JournalReader
from treadle.sessions.log.records import encode_record
from treadle.sessions.log.state_loader import StateLoader

lengths = st.sampled_from([3, 900, 2_000, 30_000, 90_000])
names = st.sampled_from(["c1", "c2", 'a"b', "ü"])
turn_ids = st.sampled_from(["turn-1", "turn-2", "turn-3"])


@st.composite
def texts(draw: st.DrawFn) -> tuple[Text, ...]:
    return (Text(draw(st.sampled_from("xyzä\n\ud800")) * draw(lengths)),)


@st.composite
def items(draw: st.DrawFn) -> Entry:
    content = draw(texts())
    match draw(st.sampled_from(["user", "reply", "result", "notice", "summary"])):
        case "user":
            metadata = draw(st.sampled_from([None, {"job": 1}, {"user": "ü"}]))
            message_id = draw(st.sampled_from(["", "msg_1"]))
            return ItemAdded(UserItem(content, metadata=metadata), message_id)
        case "reply":
            return ItemAdded(AssistantItem((*content, ToolCall(draw(names), "bash", "{}"))))
        case "result":
            return ItemAdded(ToolResultItem(draw(names), "bash", content))
        case "notice":
            return ItemAdded(NoticeItem(content[0].text))
        case _:
            return ItemAdded(SummaryItem(content[0].text, 2))


others = st.one_of(
    st.builds(TurnBegan, turn_ids),
    st.builds(Rewound, turn_ids),
    st.builds(TurnEnded, turn_ids, st.just("end_turn")),
    st.builds(lambda call: Intent(call, "bash", "k", "irreversible"), names),
    st.builds(lambda call: ApprovalDecision(call, "allow"), names),
    st.builds(
        lambda call, content: EarlyResult(ToolResultItem(call, "bash", content)), names, texts()
    ),
    st.builds(
        lambda start, size: ViewRewritten("m", start, start + size, (SummaryItem("s", size),)),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    st.builds(Quarantined, st.integers(0, 5), st.integers(0, 2), st.just("why")),
    st.just(InputQueued(UserItem((Text("waits" * 500),)))),
    st.builds(InputMoved, st.integers(0, 3), st.integers(0, 3)),
    st.just(ItemAdded(UserItem((Text("waits" * 500),)))),
    st.just(Uncompacted()),
    st.just(UsageRecorded("m", Usage(1, 2))),
    st.just(ChildUsageRecorded("child", "m", Usage(1, 2))),
    st.just(Suspended("turn-1", "budget", WakeCondition("money"))),
)
logs = st.lists(st.one_of(items(), others), max_size=25)


async def written(place: Path, entries: list[Entry], *, singly: bool = False) -> None:
    """`singly`: each entry is a write, and ends with its hash."""
    journal = Journal.create(place)
    for entry in entries:
        journal.append(entry)
        if singly:
            await journal.flush()
    await journal.aclose()


@settings(max_examples=60)
@given(logs, st.booleans())
def test_the_two_folds_agree(entries: list[Entry], singly: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "s"
        asyncio.run(written(place, [*entries, TurnBegan("last")], singly=singly))
        expected = fold_entries([*entries, TurnBegan("last")])
        assert read_entries(place) == [*entries, TurnBegan("last")]
        assert StateLoader(JournalReader(place)).load() == expected
        # Lines that had to be let go are read again where there is room for them after all.
        crowded = StateLoader(JournalReader(place), max_bytes=100_000)
        view = crowded.load()
        assert len(view.transcript) == len(expected.transcript)
        if not crowded.truncated_count:
            assert view == expected


def test_the_outline_of_an_entry_has_what_the_fold_needs():
    tricky = 'c","content":[{"type":"tool_call","id":"other"'
    calls = (Text(tricky), ToolCall("c1", "bash", tricky), ToolCall(tricky, "bash", "{}"))
    known: list[tuple[Item, tuple[object, ...]]] = [
        (ToolResultItem(tricky, "bash", (Text("r"),), data={"content": 1}), (tricky, "bash")),
        (AssistantItem(calls, usage=Usage(3, 4)), (["c1", tricky], Usage(3, 4))),
        (UserItem((Text("m"),)), ("msg_1",)),
    ]
    for item, expected in known:
        found = outline_entry(encode_record(ItemAdded(item, "msg_1"), 1, 1, 0.0))
        assert found is not None
        match found.item:
            case ToolResultItem(call_id=call_id, name=name):
                assert (call_id, name) == expected
            case AssistantItem(calls=outlined, usage=usage):
                assert ([call.id for call in outlined], usage) == expected
            case _:
                assert (found.message_id,) == expected


def test_an_entry_whose_outline_is_not_enough_is_decoded_whole():
    texts = (Text("m"),)
    for item in (UserItem(texts, metadata={"job": 1}), NoticeItem("n"), SummaryItem("s")):
        assert outline_entry(encode_record(ItemAdded(item), 1, 1, 0.0)) is None
    assert outline_entry(b'{"kind":"item","item":{"content":[],"type":"tool_result"}}') is None


async def test_a_message_whose_line_ends_with_a_hash_waits_no_longer(tmp_path: Path) -> None:
    message = UserItem((Text("m" * 5_000),))
    entries: list[Entry] = [InputQueued(message, "msg_1"), ItemAdded(message, "msg_1")]
    await written(tmp_path / "s", entries, singly=True)
    assert StateLoader(JournalReader(tmp_path / "s")).load().queued == ()


async def test_fault_23_a_view_too_long_for_any_model_keeps_its_newest_part_whole(
    tmp_path: Path,
) -> None:
    entries: list[Entry] = []
    for number in range(100):
        call = ToolCall(f"c{number}", "bash", "{}")
        entries += [
            ItemAdded(UserItem((Text(f"{number} " * 500),))),
            ItemAdded(AssistantItem((Text("a" * 3000), call), "tool_use")),
            ItemAdded(ToolResultItem(call.id, "bash", (Text("r" * 10_000),))),
        ]
    await written(tmp_path / "s", entries)
    folding = StateLoader(JournalReader(tmp_path / "s"), max_bytes=200_000)
    view = folding.load()
    assert len(view.transcript) == 300
    assert find_violations(view.transcript) == []
    whole = list(fold_entries(entries).transcript)
    assert list(view.transcript[-9:]) == whole[-9:]
    assert folding.truncated_count > 200
    assert sum(len(str(item)) for item in view.transcript) < 600_000
    old = view.transcript[2]
    assert isinstance(old, ToolResultItem)
    assert "session log has them" in old.text


async def test_the_metadata_of_a_long_message_is_part_of_its_open_turn(tmp_path: Path) -> None:
    for size in (3, 2_000, 90_000, 2_000_000):
        message = UserItem((Text("x" * size),), metadata={"job": size})
        place = tmp_path / str(size)
        await written(place, [TurnBegan("turn-1"), ItemAdded(message)])
        view = StateLoader(JournalReader(place)).load()
        assert view.turn is not None
        assert view.turn.metadata == {"job": size}
        assert view.transcript[0] == message
