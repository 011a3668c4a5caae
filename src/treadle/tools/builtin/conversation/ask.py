"""`ask`: a question to the person, with choices.

The host puts who asks into the services as "ask": an async function that takes a Question and
gives the answer as text, or None when nobody answers.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, ClassVar

import msgspec

from treadle.core.contracts.tool import Access, ToolOutput
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments
from treadle.tools.builtin.base import BuiltinTool, escape_multiline
from treadle.tools.builtin.session import CallSite

NO_USER_MESSAGE = (
    "nobody can be asked in this run. Decide by yourself what is most likely meant, go on, and "
    "say in your answer what you assumed"
)


class QuestionChoice(msgspec.Struct, frozen=True):
    label: Annotated[str, msgspec.Meta(description="The choice, in a few words")]
    description: Annotated[str, msgspec.Meta(description="What it would mean")] = ""


class UserQuestion(msgspec.Struct, frozen=True):
    """What a host shows. The person may always answer something else than the choices."""

    question: str
    choices: tuple[QuestionChoice, ...] = ()
    multiple: bool = False


def parse_question(arguments: Arguments) -> UserQuestion:
    """What a call that was found well formed asks."""
    options = arguments.get("options", arguments.get("choices")) or []
    labels = [one if isinstance(one, str) else str(one["label"]) for one in options]
    return UserQuestion(str(arguments["question"]), tuple(map(QuestionChoice, labels)))


def make_answer_output(answer: str) -> ToolOutput:
    """A person's answer, as the result of the call."""
    return ToolOutput(f"The user answered: {answer}", display=escape_multiline(answer))


AskUser = Callable[[UserQuestion], Awaitable[str | None]]


class AskArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: Annotated[str, msgspec.Meta(description="One clear question")]
    options: Annotated[
        list[QuestionChoice], msgspec.Meta(description="Two to four choices, the best one first")
    ] = []
    multi_select: Annotated[
        bool, msgspec.Meta(description="Whether several choices may be taken")
    ] = False


class AskTool(BuiltinTool[AskArguments]):
    name = "ask"
    arguments_type = AskArguments
    timeout = 7 * 24 * 3600.0  # people sleep
    argument_aliases: ClassVar[Mapping[str, str]] = {
        "choices": "options",
        "multiSelect": "multi_select",
    }

    def validate(self, args: AskArguments) -> str | None:
        return None if args.question.strip() else "the question is empty"

    def parse_arguments(self, arguments: Arguments) -> AskArguments:
        """Choices may come as plain texts, too."""
        options = arguments.get("options", arguments.get("choices"))
        if isinstance(options, list) and any(isinstance(one, str) for one in options):
            named = [{"label": one} if isinstance(one, str) else one for one in options]
            key = "options" if "options" in arguments else "choices"
            arguments = {**arguments, key: named}
        return super().parse_arguments(arguments)

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return Access(writes=frozenset({"the user's attention"}))  # one question at a time

    async def run(self, args: AskArguments, site: CallSite) -> ToolOutput:
        asker: AskUser | None = site.context.services.get("ask")
        if asker is None:
            raise ToolError(NO_USER_MESSAGE)
        question = UserQuestion(args.question, tuple(args.options), args.multi_select)
        answer = await asker(question)
        if answer is None:
            raise ToolError(NO_USER_MESSAGE)
        return make_answer_output(answer)
