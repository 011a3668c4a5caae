"""`ask`: a question to the user, with choices.

The host provides the service "ask": an async function that takes a UserQuestion and returns the
answer as text, or None if there is no answer.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, ClassVar

import msgspec

from treadle.core.contracts.tool import Access, RepairedArguments, ToolOutput
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments
from treadle.tools.builtin.base import BuiltinTool, describe, escape_multiline
from treadle.tools.builtin.session_memory import CallSite

DECIDE_YOURSELF = (
    "Decide yourself what is most likely meant, continue, and state in your answer what you assumed"
)


class QuestionChoice(msgspec.Struct, frozen=True):
    label: Annotated[str, describe("In a few words")]
    description: Annotated[str, describe("What it would mean")] = ""


class UserQuestion(msgspec.Struct, frozen=True):
    """What a host shows. The user may always answer something else than the choices."""

    question: str
    choices: tuple[QuestionChoice, ...] = ()
    multiple: bool = False


def parse_question(arguments: Arguments) -> UserQuestion:
    """The question of a call whose arguments were checked."""
    options = arguments.get("options", arguments.get("choices")) or []
    labels = [option if isinstance(option, str) else str(option["label"]) for option in options]
    return UserQuestion(str(arguments["question"]), tuple(map(QuestionChoice, labels)))


def make_answer_output(answer: str) -> ToolOutput:
    """The user's answer as the result of the call."""
    text, data = f"The user answered: {answer}", {"user_answer": answer}
    return ToolOutput(text, display=escape_multiline(answer), data=data)


AskUser = Callable[[UserQuestion], Awaitable[str | None]]


class AskArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: Annotated[str, describe("One clear question")]
    options: Annotated[list[QuestionChoice], describe("Two to four, the best first")] = []
    multi_select: Annotated[bool, describe("Several may be taken")] = False


class AskTool(BuiltinTool[AskArguments]):
    name = "ask"
    kind = "think"
    arguments_type = AskArguments
    timeout = 7 * 24 * 3600.0  # people sleep
    aliases = ("ask_user", "ask_user_question", "request_user_input", "ask_followup_question")
    argument_aliases: ClassVar = {"choices": "options", "prompt": "question", "text": "question"}

    def repair(self, arguments: Arguments) -> RepairedArguments:
        """Also for a list `questions` with one entry, and for a `header`, as other programs have
        them."""
        note = ""
        match arguments:
            case {"questions": [{"question": str()} as only]} if len(arguments) == 1:
                arguments, note = only, "`questions` is one question"
            case {"header": str()}:
                note = "`header` is left out"
        if not note:
            return super().repair(arguments)
        known = {name: value for name, value in arguments.items() if name != "header"}
        meant = super().repair(known)
        return msgspec.structs.replace(meant, notes=(note, *meant.notes))

    def validate(self, args: AskArguments) -> str | None:
        return None if args.question.strip() else "the question is empty"

    @classmethod
    def parse_arguments(cls, arguments: Arguments) -> AskArguments:
        """Choices may be plain strings, too."""
        options = arguments.get("options", arguments.get("choices"))
        if isinstance(options, list) and any(isinstance(option, str) for option in options):
            named = [{"label": item} if isinstance(item, str) else item for item in options]
            key = "options" if "options" in arguments else "choices"
            arguments = {**arguments, key: named}
        return super().parse_arguments(arguments)

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return Access(writes=frozenset({"the user's attention"}))  # one question at a time

    async def run(self, args: AskArguments, site: CallSite) -> ToolOutput:
        asker: AskUser | None = site.context.services.get("ask")
        if asker is None:
            raise ToolError(f"no user can be asked in this run. {DECIDE_YOURSELF}")
        question = UserQuestion(args.question, tuple(args.options), args.multi_select)
        answer = await asker(question)
        if answer is None:
            return ToolOutput(f"The user did not answer. {DECIDE_YOURSELF}.")
        return make_answer_output(answer)
