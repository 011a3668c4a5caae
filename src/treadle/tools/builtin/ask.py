"""`ask`: a question to the person, with choices.

The host puts who asks into the services as "ask": an async function that takes a Question and
gives the answer as text, or None when nobody answers.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, ClassVar

import msgspec

from treadle.core.contracts.tool import Resources, ToolOutput
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments
from treadle.tools.builtin.desk import Seat
from treadle.tools.builtin.form import BuiltinTool, visible

NOBODY = (
    "nobody can be asked in this run. Decide by yourself what is most likely meant, go on, and "
    "say in your answer what you assumed"
)


class Choice(msgspec.Struct, frozen=True):
    label: Annotated[str, msgspec.Meta(description="The choice, in a few words")]
    description: Annotated[str, msgspec.Meta(description="What it would mean")] = ""


class Question(msgspec.Struct, frozen=True):
    """What a host shows. The person may always answer something else than the choices."""

    question: str
    choices: tuple[Choice, ...] = ()
    multiple: bool = False


def question_in(arguments: Arguments) -> Question:
    """What a call that was found well formed asks."""
    options = arguments.get("options", arguments.get("choices")) or []
    labels = [one if isinstance(one, str) else str(one["label"]) for one in options]
    return Question(str(arguments["question"]), tuple(map(Choice, labels)))


def answered(answer: str) -> ToolOutput:
    """A person's answer, as the result of the call."""
    return ToolOutput(f"The user answered: {answer}", display=visible(answer))


Asker = Callable[[Question], Awaitable[str | None]]


class AskArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: Annotated[str, msgspec.Meta(description="One clear question")]
    options: Annotated[
        list[Choice], msgspec.Meta(description="Two to four choices, the best one first")
    ] = []
    multi_select: Annotated[
        bool, msgspec.Meta(description="Whether several choices may be taken")
    ] = False


class AskTool(BuiltinTool[AskArguments]):
    name = "ask"
    form = AskArguments
    timeout = 7 * 24 * 3600.0  # people sleep
    synonyms: ClassVar[Mapping[str, str]] = {"choices": "options", "multiSelect": "multi_select"}

    def objection(self, given: AskArguments) -> str | None:
        return None if given.question.strip() else "the question is empty"

    def given(self, arguments: Arguments) -> AskArguments:
        """Choices may come as plain texts, too."""
        options = arguments.get("options", arguments.get("choices"))
        if isinstance(options, list) and any(isinstance(one, str) for one in options):
            named = [{"label": one} if isinstance(one, str) else one for one in options]
            key = "options" if "options" in arguments else "choices"
            arguments = {**arguments, key: named}
        return super().given(arguments)

    def resources(self, arguments: Arguments) -> Resources:
        return Resources(writes=frozenset({"the user's attention"}))  # one question at a time

    async def run(self, given: AskArguments, seat: Seat) -> ToolOutput:
        asker: Asker | None = seat.context.services.get("ask")
        if asker is None:
            raise ToolError(NOBODY)
        question = Question(given.question, tuple(given.options), given.multi_select)
        answer = await asker(question)
        if answer is None:
            raise ToolError(NOBODY)
        return answered(answer)
