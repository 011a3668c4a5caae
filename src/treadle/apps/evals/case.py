"""A case: what an agent is asked, and the checks of its answer.

A check is a function of the result and the case, plain or `async`. It returns a bool, a score from
0 to 1, or what is wrong as a text; None and "" mean that nothing is. An AssertionError is what is
wrong, too. Checks by a model are in judge.py; evaluate.py calls them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from treadle.agents.agent import Agent
from treadle.agents.run import Result
from treadle.apps.evals.recorded_tools import describe_difference, list_calls
from treadle.core.argument_checks import FUNCTION, check, filled_text, list_of
from treadle.core.errors import ConfigError
from treadle.core.steps import UserInput
from treadle.core.transcript.items import AssistantItem, Item, UserItem, to_user_item

if TYPE_CHECKING:
    import typing_extensions

    AnswerT = typing_extensions.TypeVar("AnswerT", default=Any)
else:
    AnswerT = TypeVar("AnswerT")

CheckAnswer = bool | float | str | None
EvalCheck = Callable[[Result[AnswerT], "Case[AnswerT]"], CheckAnswer | Awaitable[CheckAnswer]]

CHECKS_EXPECTED = list_of(FUNCTION, "functions of a result and a case")
_NAME = filled_text("a name")


class Case(msgspec.Struct, Generic[AnswerT], frozen=True, eq=False):
    """What an agent is asked. `expected` is for the checks; without any check the answer has to be
    equal to it. `earlier` are messages that the agent answers before the prompt, in one
    conversation. `deps` are those of the run. With `recorded`, the items of a session, the tools
    answer as they did there: no effect happens again, and the calls that may change something have
    to be the same."""

    name: str
    prompt: UserInput
    deps: Any = None
    expected: AnswerT | None = None
    checks: Sequence[EvalCheck[AnswerT]] = ()
    earlier: Sequence[UserInput] = ()
    recorded: Sequence[Item] = ()

    def __post_init__(self) -> None:
        check("name", self.name, _NAME)
        check("checks", self.checks, CHECKS_EXPECTED)

    @property
    def question(self) -> str:
        """The prompt as a text."""
        return to_user_item(self.prompt).text

    @staticmethod
    async def from_session(
        agent: Agent[Any, Any],
        session_id: str,
        *,
        name: str = "",
        deps: Any = None,
        checks: Sequence[EvalCheck[Any]] = (),
    ) -> Case[Any]:
        """The user's messages of a session in the store of the agent, with its last answer, as a
        text, as what is expected, and its calls as `recorded`. SessionNotFound if there is no such
        session."""
        stored = await agent.sessions.read(session_id, deps=deps)
        said = [item for item in stored.history if isinstance(item, UserItem)]
        replies = [item for item in stored.history if isinstance(item, AssistantItem)]
        if not said or not replies:
            raise ConfigError(f"session {session_id} has no message with an answer")
        *earlier, prompt = [UserItem(item.content, metadata=item.metadata) for item in said]
        answer, items = replies[-1].text, tuple(stored.history)
        return Case(name or session_id, prompt, deps, answer, checks, earlier, items)


def equals(result: Result[Any], case: Case[Any]) -> str:
    """A check: the answer is equal to what is expected."""
    is_equal = result.output == case.expected
    return "" if is_equal else f"expected {case.expected!r}, got {result.output!r}"


def contains(result: Result[Any], case: Case[Any]) -> str:
    """A check: the text of the answer has what is expected in it; case does not matter."""
    expected = str(case.expected)
    is_there = expected.casefold() in result.text.casefold()
    return "" if is_there else f"{expected!r} is not in the answer"


def same_calls(result: Result[Any], case: Case[Any]) -> str:
    """A check: the calls, also those that only read, are the same as the recorded ones."""
    sides = ([call for _, call in list_calls(one)] for one in (case.recorded, result.transcript))
    return describe_difference(*sides)
