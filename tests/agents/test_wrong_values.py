"""Values that a program makes or gives to a run: a wrong one is named where it is written."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treadle import (
    Agent,
    AgentDefinition,
    CacheRequest,
    ConfigError,
    Image,
    ModelOptions,
    Text,
    Transcript,
    UserItem,
    tool,
)
from treadle.contracts import Allow, BaseGate, BasePolicy
from treadle.core.errors import AccessDenied, ModelError
from treadle.core.retry import Retry
from treadle.events import WarningRaised
from treadle.models import Say, Scripted, model
from treadle.sessions import SqliteStore
from treadle.testing import MemoryStore, RecordingObserver

WRONG: Any = ("a",)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ModelOptions(topp=1), "ModelOptions has no field 'topp'; did you mean top_p?"),  # type: ignore[call-arg]
        (lambda: Retry(attempt=1), "Retry has no field 'attempt'; did you mean attempts?"),  # type: ignore[call-arg]
        (
            lambda: AgentDefinition("a", "b", instructions="c"),  # type: ignore[call-arg]
            "AgentDefinition has no field 'instructions'; did you mean prompt?",
        ),
        (lambda: Retry(zeal=1), "Retry has no field 'zeal'; attempts, "),  # type: ignore[call-arg]
    ],
)
def test_a_field_that_does_not_exist_is_an_error_with_the_name_that_is_meant(
    make: Callable[[], object], words: str
):
    with pytest.raises(TypeError) as caught:
        make()
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("make", "given", "options", "words"),
    [
        (AgentDefinition, [3, "b", "c"], {}, "AgentDefinition.name is 3; expected a name"),
        (AgentDefinition, ["a", 4, "c"], {}, "AgentDefinition.description is 4; expected"),
        (AgentDefinition, ["a", "b", 5], {}, "AgentDefinition.prompt is 5; expected a text"),
        (AgentDefinition, ["a", "b", "c", "read"], {}, "tools is 'read'; expected a list"),
        (AgentDefinition, ["a", "b", "c"], {"max_turns": "x"}, "max_turns is 'x'; expected"),
        (Retry, [0], {}, "Retry.attempts is 0; expected a whole number of 1 or more"),
        (ModelOptions, [], {"temperature": "hot"}, "temperature is 'hot'; expected a number"),
        (ModelOptions, [], {"max_tokens": "3"}, "max_tokens is '3'; expected a whole number"),
        (ModelOptions, [], {"thinking": 1.5}, "thinking is 1.5; expected a number of tokens, or"),
        (ModelOptions, [], {"stop": "END"}, "stop is 'END'; expected a list of texts"),
        (CacheRequest, [], {"enabled": 3}, "CacheRequest.enabled is 3; expected True or False"),
        (Say, [], {"calls": ["pay"]}, r"Say.calls\[0\] is 'pay'; expected the name of a tool"),
        (Say, [], {"calls": [("pay", 3)]}, r"Say.calls\[0\] is \('pay', 3\); expected the name"),
        (Say, [3], {}, "Say.text is 3; expected a text"),
        (
            Agent,
            [Scripted([])],
            {"check_output": lambda answer: None},
            r"check_output is .*; expected a function of \(answer, context",
        ),
        (
            Agent,
            [Scripted([])],
            {"approve": lambda: True},
            r"approve is .*; expected a function of \(approval: PendingApproval\)",
        ),
        (model, [3], {}, "the name of a model is 3; expected a text"),
        (SqliteStore, [3, "a"], {}, "path is 3; expected a path"),
        (SqliteStore, ["", "a"], {}, "path is ''; expected a path"),
        (SqliteStore, ["x.db", 3], {}, "session_id is 3; expected a text"),
    ],
)
def test_a_wrong_value_is_an_error_when_it_is_made(
    make: Callable[..., object], given: list[Any], options: dict[str, Any], words: str
):
    with pytest.raises(ConfigError, match=words):
        make(*given, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"history": "abc"}, "history is 'abc'; expected a Transcript, or a list of items"),
        ({"history": 3}, "history is 3; expected a Transcript, or a list of items"),
        ({"history": [{"role": "user"}]}, r"history\[0\] is {'role': 'user'}; expected a UserItem"),
        ({"history": Transcript(WRONG)}, r"history\[0\] is 'a'; expected a UserItem"),
        ({"history": [UserItem(WRONG)]}, r"history\[0\]: content consists of Text"),
        ({"output_retries": "a"}, "output_retries is 'a'; expected a whole number of 0 or more"),
        ({"output_retries": -1}, "output_retries is -1; expected a whole number of 0 or more"),
    ],
)
async def test_a_wrong_argument_of_a_run_is_an_error_before_the_model_is_called(
    options: dict[str, Any], words: str
):
    scripted = Scripted(["ok"])
    agent = Agent(scripted)
    with pytest.raises(ConfigError, match=words):
        await agent.run("x", **options)
    with pytest.raises(ConfigError, match=words):
        async with agent.stream("x", **options):
            pass
    assert scripted.requests == []


async def test_a_result_as_history_is_told_to_be_its_transcript():
    agent = Agent(Scripted(["one", "two"]))
    result = await agent.run("x")
    with pytest.raises(ConfigError, match=r"expected its transcript: history=result\.transcript"):
        await agent.run("y", history=result)  # type: ignore[call-overload]
    assert len((await agent.run("y", history=result.transcript)).transcript) == 4


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ({"role": "user"}, "a prompt is a text, or a list .* Earlier messages are given as"),
        (b"hi", "a prompt is a text, or a list of texts, images and documents; got b'hi'"),
        (
            [Image("foo")],
            r"Image\('foo'\) has no data and no url; write Image\(\"image/png\", data",
        ),
        ([Image("photo.png", b"\x89PNG")], "media_type of Image is 'photo.png'; write Image"),
    ],
)
async def test_a_wrong_prompt_says_how_it_is_written(prompt: Any, words: str):
    with pytest.raises(TypeError, match=words):
        await Agent(Scripted(["ok"])).run(prompt)


def test_the_content_of_a_message_is_a_tuple_of_parts():
    with pytest.raises(TypeError, match=r"content is a tuple of parts, such as \(Text"):
        UserItem("hi")  # type: ignore[arg-type]
    assert UserItem((Text("hi"),)).text == "hi"


async def test_metadata_says_which_name_or_value_is_wrong():
    with pytest.raises(TypeError, match="metadata: the name 3 is not a text"):
        await Agent(Scripted(["ok"])).run("x", metadata={3: True})  # type: ignore[dict-item]


@pytest.mark.parametrize("store", [3, ""])
def test_a_store_that_is_none_is_an_error_of_the_session(store: Any):
    with pytest.raises(ConfigError, match=r"store is .*; expected a folder"):
        Agent(Scripted([])).session("a", store=store)


def test_a_sqlite_store_takes_its_path_as_a_text(tmp_path: Path):
    assert SqliteStore(str(tmp_path / "sessions.db"), "a").is_empty


@tool
def pay() -> str:
    return "paid"


class SaysTrue(BasePolicy):
    async def decide(self, request: object) -> Any:
        return True


class NotAsync(BasePolicy):
    def decide(self, request: object) -> Any:
        return Allow()


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (SaysTrue(), "SaysTrue returned True; expected Allow, Deny or Ask"),
        (NotAsync(), "NotAsync.decide must be `async def`"),
    ],
)
async def test_a_policy_that_gives_no_verdict_denies_and_warns(policy: Any, words: str):
    observer = RecordingObserver()
    scripted = Scripted([Say(calls=[("pay", {})]), "done"])
    result = await Agent(scripted, [pay], policy=policy, observers=[observer]).run("x")
    assert words in result.transcript[2].text
    [warning] = [event for event in observer.events if isinstance(event, WarningRaised)]
    assert words in warning.text


class TrueGate(BaseGate):
    def admit(self, estimate: object) -> Any:
        return True


async def test_a_gate_that_gives_no_verdict_ends_the_run():
    scripted = Scripted(["ok"])
    with pytest.raises(
        ConfigError, match="gate TrueGate returned True; expected Admit, Stop or Wait"
    ):
        await Agent(scripted, gates=[TrueGate()]).run("x")
    assert scripted.requests == []


async def test_a_program_may_define_the_general_agent():
    own = AgentDefinition("general", "Does all.", "You do all.")
    task = Say(calls=[("task", {"description": "d", "prompt": "p"})])
    scripted = Scripted([task, "child done", "done"])
    await Agent(scripted, subagents=[own], store=MemoryStore).run("x")
    assert scripted.requests[1].system.startswith("You do all.")


def list_frames(error: BaseException) -> list[str]:
    """The file names of its traceback."""
    return [Path(frame.filename).name for frame in traceback.extract_tb(error.__traceback__)]


def test_a_missing_key_is_told_near_the_line_that_ran_the_agent():
    agent = Agent(model("claude-sonnet-4-5", environ={}))
    with pytest.raises(AccessDenied, match="set ANTHROPIC_API_KEY") as caught:
        agent.run_sync("hi")
    assert list_frames(caught.value) == [Path(__file__).name, "agent_runs.py"]
    with pytest.raises(AccessDenied) as awaited:
        asyncio.run(agent.run("hi"))
    assert list_frames(awaited.value)[-1] == "run.py"


def test_other_errors_of_a_model_keep_the_frames_that_raised_them():
    with pytest.raises(ModelError) as caught:
        Agent(Scripted([ModelError("strange")])).run_sync("hi")
    assert list_frames(caught.value)[-1] == "scripted.py"
