"""One run of an agent on a driver, from a prompt to its Result.

A run is one operation: its message is in a turn, or nowhere. It may take several turns, until the
answer fits the output type; what they used is its usage. `run` and `stream` of agents and sessions
are a few lines over it. Uses structured_output.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, cast

import msgspec

from treadle.core.argument_checks import (
    Expected,
    check,
    has_methods,
    instance_of,
    list_of,
    number,
    optional,
    whole_number,
)
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.task_manager import TaskInfo
from treadle.core.contracts.tool import ToolContext
from treadle.core.errors import (
    AccessDenied,
    OutputMismatch,
    OutputMissing,
    QuotaExhausted,
    ToolError,
    TreadleError,
    UnknownModel,
    error_message,
)
from treadle.core.events import TerminalReason, TurnResult, preview
from treadle.core.loop.config import NO_CHANGES, RunContext
from treadle.core.loop.driver import Driver
from treadle.core.steps import ApprovalRequest, UserInput
from treadle.core.transcript.items import Item, Metadata, NoticeItem, ToolResultItem
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import NO_USAGE, Usage
from treadle.core.type_variables import OutputT
from treadle.lib.contained import call_contained
from treadle.lib.json.schema import Mismatch
from treadle.lib.shielded import complete
from treadle.lib.tasks import await_contained
from treadle.lib.text.text import plural

if TYPE_CHECKING:
    from treadle.agents.structured_output import StructuredOutput

# The message says all about these: they are raised without the frames of the loop, so that it
# stands near the caller's own line.
ACCOUNT_ERRORS = (AccessDenied, QuotaExhausted, UnknownModel)

Prompt = UserInput | None
JsonSchema = Mapping[str, Any]
UntypedOutput = JsonSchema | Callable[..., Any]  # a checker finds Any
History = Transcript | Sequence[Item]
DecideApprovals = Callable[[ApprovalRequest], Awaitable[None]]
FinishTurn = Callable[[Driver, DecideApprovals | None], Awaitable[TurnResult]]

_AnswerT = TypeVar("_AnswerT")
_DepsT = TypeVar("_DepsT")
# (answer, context) -> what is wrong with it, as a text for the model; None: nothing.
CheckOutput = Callable[[_AnswerT, RunContext[_DepsT]], str | Awaitable[str | None] | None]

OUTPUT_RETRIES = 2
HANDOFF_KEY = "handoff"  # in the data of the result of a hand-off: the name of its tool
NO_APPROVER = "this call needs the user's approval, and the user cannot be asked"
OUTPUT_CALL = "output"  # the id of the call of an output function
BACKGROUND_WAIT = 30.0  # seconds that a run without a session waits for calls in the background


class Result(msgspec.Struct, Generic[OutputT], frozen=True):
    """How a run ended.

    `output` is the answer: an instance of the output type, or the text if there is none.
    `reason` is `end_turn`, or why the run stopped before; `detail` says it in words. `usage` and
    `cost` include child agents. `background` are the calls that went to the background, with what
    became of them: one that is `running` ends with its session, or with the run if there is none.
    """

    text: str
    reason: TerminalReason
    transcript: Transcript
    usage: Usage
    turn: TurnResult
    session_id: str
    output: OutputT = cast(OutputT, None)
    background: tuple[TaskInfo, ...] = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            from treadle.agents.foreign_names import unknown_attribute

            raise unknown_attribute("Result", name, self)

    def __repr__(self) -> str:
        said = "" if self.output == self.text else f", text={preview(self.text)!r}"
        spent = "" if self.cost is None else f", cost={self.cost:.4f}"
        return f"Result({preview(repr(self.output))}{said}, reason={self.reason!r}{spent})"

    @property
    def detail(self) -> str:
        """Why the run stopped, in words, such as the limit that was reached; "" if it did not."""
        return self.turn.detail

    @property
    def cost(self) -> float | None:
        """In USD; None when a price is not known."""
        return self.usage.cost


class SessionRunOptions(TypedDict, total=False):
    """The arguments of a run of a session besides the prompt and `output`, for type checkers."""

    output_retries: int
    metadata: Metadata | None
    model: str | Model | None
    options: ModelOptions | None
    gates: Sequence[Gate]


class RunSettings(msgspec.Struct, frozen=True):
    """What a caller may say about a run besides its prompt. `model` and what `options` set are used
    instead of the agent's, `gates` besides its own."""

    metadata: Metadata | None = None
    output_retries: int = OUTPUT_RETRIES
    model: str | Model | None = None
    options: ModelOptions | None = None
    gates: Sequence[Gate] = ()
    # Seconds to wait for calls in the background; None: they go on, the session is still open.
    background_wait: float | None = None

    def __post_init__(self) -> None:
        check("output_retries", self.output_retries, _RETRIES)
        check("background_wait", self.background_wait, _SECONDS)
        if self.model is not None or self.options is not None or self.gates:
            check("model", self.model, optional(MODEL_EXPECTED))
            check("options", self.options, OPTIONS_EXPECTED)
            check("gates", self.gates, GATES_EXPECTED)


def merge_options(base: ModelOptions, given: ModelOptions | None) -> ModelOptions:
    """Those of an agent, with what a run sets."""
    if given is None:
        return base
    values, unset = {name: getattr(given, name) for name in given.__struct_fields__}, ModelOptions()
    changes = {name: one for name, one in values.items() if one != getattr(unset, name)}
    return msgspec.structs.replace(base, **changes)


MODEL_EXPECTED = Expected(
    lambda value: (
        isinstance(value, str)
        or (hasattr(value, "stream") and hasattr(value, "card") and not isinstance(value, type))
    ),
    'a name such as "anthropic/claude-sonnet-5-5" or a Model',
)
OPTIONS_EXPECTED = optional(instance_of(ModelOptions, "a ModelOptions"))
GATES_EXPECTED = list_of(
    has_methods("admit", "settle", base="BaseGate", must_be_plain=True),
    "objects with the methods admit() and settle()",
)
_RETRIES = whole_number(0)
_SECONDS = optional(number("seconds, 0 or more", lambda value: value >= 0))


class RunSuspended(Exception):
    """Raised by what decides on approvals: the calls wait, and the run ends here."""


class RunAnswer(msgspec.Struct, frozen=True):
    """The last turn of a run; `text` and `value` are its answer, if it ended with one."""

    turn: TurnResult
    text: str | None = None
    value: Any = None


class Run:
    """`finish_turn` drives one turn to its end; `output` is what the answer has to be."""

    def __init__(
        self,
        driver: Driver,
        finish_turn: FinishTurn,
        output: StructuredOutput | None,
        options: RunSettings = RunSettings(),  # noqa: B008 - it is frozen
        model: Model | None = None,
        check_output: CheckOutput[Any, Any] | None = None,
    ) -> None:
        """`model` is used instead of the driver's, until the end of the run."""
        self.driver = driver
        self.output = output
        self._finish_turn = finish_turn
        self._options = options
        self._model, self._other_model = model, driver.model
        self._check = check_output
        self._usage = NO_USAGE  # of its turns
        self._has_ended = False
        self._background: tuple[TaskInfo, ...] = ()

    def begin(self, prompt: Prompt) -> None:
        """Give the prompt; without one, continue what an error, a limit or a crash left."""
        if self._model is not None:
            self.driver.use_model(self._model)
        self.driver.children.begin_run(self._options.gates, self._options.options, self._model)
        self.configure()
        if prompt is None:
            self.driver.retry()
        else:
            self.driver.offer(prompt, self._options.metadata)

    def configure(self, *, continues: bool = False) -> None:
        """Let the turns answer with the output type, and as the caller wants this run."""
        driver, output, given = self.driver, self.output, self._options
        options = None if given.options is None else merge_options(driver.options, given.options)
        settings = NO_CHANGES
        if output is not None:
            settings = output.make_settings(options or driver.options)
        changed = msgspec.structs.replace(
            settings,
            options=settings.options or options,
            gates=(*settings.gates, *given.gates),
            continues=continues,
        )
        driver.configure_turns(changed)

    async def finish(self) -> Result[Any]:
        """The result. Raises the error of a turn that failed, and OutputMissing if the run stopped
        before it gave an answer of the output type."""
        return self.make_result(await self.drive())

    async def drive(self, decide: DecideApprovals | None = None) -> RunAnswer:
        """The answer, after the calls in the background. What is raised carries the run."""
        try:
            answer = await self.answer(decide)
            await self._wait_for_background()
        except BaseException as error:
            self.attach(error)
            raise
        return answer

    async def answer(
        self, decide: DecideApprovals | None = None, ended: TurnResult | None = None
    ) -> RunAnswer:
        """Drive a turn to its end, or several until the answer fits the output type and the check
        of the agent. OutputMismatch after the last attempt; a turn that does not end with
        `end_turn` gives no answer of a type. `ended` is a first turn that was driven already, by a
        process that ended before its answer was used."""
        output, left = self.output, self._options.output_retries
        if output is not None:
            output.begin(left + 1)
        while True:
            turn, ended = ended or await self._run_turn(decide), None
            handed = find_handoff_answer(turn.items)
            said = turn.text if handed is None else handed
            if output is None and (self._check is None or turn.reason != "end_turn"):
                return RunAnswer(turn, said, said)
            if turn.reason != "end_turn":
                return RunAnswer(turn)
            text = said
            if output is not None and handed is None:
                text = output.find_answer(turn, self.driver.transcript)
            question, has_more = "The answer was refused: {}. Answer again.", left > 0
            try:
                value = text if output is None else output.parse(text)
            except Mismatch as mismatch:
                assert output is not None, "every text fits"
                problem, has_more = str(mismatch), output.has_attempts
                question = output.ask_again(problem)
            else:
                value, found = await self._finish_answer(value, turn)
                if found is None:
                    return RunAnswer(turn, text, value)
                problem, question = found, question.format(found)
            if not has_more:
                raise self._make_mismatch(text, problem)
            left -= 1
            self.configure(continues=True)
            self.driver.offer(question, self._options.metadata)

    async def _finish_answer(self, value: Any, turn: TurnResult) -> tuple[Any, str | None]:
        """The answer for the caller, and why the program refuses it, if it does."""
        if self.output is not None:
            try:
                work = self.output.finish(value, self._make_tool_context(turn))
                value = await await_contained(work)
            except ToolError as refusal:
                return None, error_message(refusal)
        return value, await self._find_problem(value, turn)

    def _make_tool_context(self, turn: TurnResult) -> ToolContext[Any]:
        """For an output function, which is no call: nothing is shown of it."""
        driver, ids = self.driver, (self.driver.session_id, turn.turn_id)
        return ToolContext(
            *ids,
            OUTPUT_CALL,
            "/".join([*ids, OUTPUT_CALL]),
            report_progress=_ignore,
            detach=_ignore,
            relay_event=_ignore,
            history=lambda: driver.history,
            deps=driver.deps,
            metadata=turn.metadata,
            usage=driver.total_usage,
        )

    async def _find_problem(self, value: object, turn: TurnResult) -> str | None:
        """What the check of the agent says about an answer."""
        if self._check is None:
            return None
        driver = self.driver
        context = RunContext(driver.session_id, turn.turn_id, driver.deps, turn.metadata)
        try:
            problem: object = call_contained(self._check, value, context)
            if inspect.isawaitable(problem):
                problem = await await_contained(problem)
        except ToolError as refusal:
            problem = error_message(refusal)
        if problem is None or isinstance(problem, str):
            return problem or None
        raise TypeError(f"check_output returned {problem!r:.80}; expected a text or None")

    def _make_mismatch(self, answer: str, problem: str) -> OutputMismatch:
        name, attempts = self.driver.model.name, plural(self._options.output_retries + 1, "attempt")
        return OutputMismatch(
            f"{name} gave no answer that fits in {attempts}: {problem}. "
            f"It said last: {preview(answer)}",
            provider=name,
            problem=problem,
            answer=answer,
        )

    def end(self) -> None:
        """Take back what is in no turn. May be repeated."""
        if not self._has_ended:
            self._has_ended = True
            self.driver.withdraw_offers()
            self.driver.configure_turns(NO_CHANGES)
            self.driver.children.begin_run((), None, None)
            if self._model is not None:
                self.driver.use_model(self._other_model)

    async def aclose(self) -> None:
        """End, and close a model that was made for this run."""
        self.end()
        if self._model is not None and isinstance(self._options.model, str):
            await complete(self._model.aclose())

    async def _run_turn(self, decide: DecideApprovals | None) -> TurnResult:
        turn = await self._finish_turn(self.driver, decide)
        self._usage = self._usage + turn.total_usage
        return turn

    def make_result(self, answer: RunAnswer) -> Result[Any]:
        driver, turn, error = self.driver, answer.turn, answer.turn.error
        if error is None and answer.text is None:
            error = OutputMissing(turn.reason, detail=turn.detail)
        if isinstance(error, ACCOUNT_ERRORS):
            error = error.with_traceback(None)
        if error is not None or answer.text is None:
            assert error is not None, "made above"
            raise self.attach(error)
        return Result(
            answer.text,
            turn.reason,
            driver.transcript,
            self._usage,
            turn,
            driver.session_id,
            answer.value,
            self._background,
        )

    def attach(self, error: BaseException) -> BaseException:
        """The error, which leaves the run, with it: `transcript`, `usage`, `cost` and
        `session_id`."""
        driver, usage = self.driver, self._usage
        carried = {"transcript": driver.transcript, "usage": usage, "session_id": driver.session_id}
        if not isinstance(error, TreadleError):
            carried["cost"] = usage.cost
        for name, value in carried.items():
            with contextlib.suppress(AttributeError):  # a class without room for it
                setattr(error, name, value)
        return error

    async def _wait_for_background(self) -> None:
        """Wait for calls in the background, as long as the caller wants."""
        tasks, seconds = self.driver.tasks, self._options.background_wait
        if any(task.state == "running" for task in tasks.list()) and seconds:
            waiting = asyncio.get_running_loop().create_task(tasks.wait())
            try:
                await asyncio.wait([waiting], timeout=seconds)
            finally:
                waiting.cancel()
        self._background = tasks.list()


def _ignore(*_: object) -> None:
    return None


def find_handoff_answer(transcript: Sequence[Item]) -> str | None:
    """What another agent answered, if the transcript ends with a hand-off to it."""
    for item in reversed(transcript):
        if isinstance(item, ToolResultItem):
            if item.data is not None and HANDOFF_KEY in item.data:
                return item.text
        elif not isinstance(item, NoticeItem):
            break
    return None


def reject_unknown_argument(function: str, known: Iterable[str], unknown: Iterable[str]) -> None:
    """TypeError for an argument that does not exist."""
    for name in unknown:
        from treadle.agents.foreign_names import unknown_argument

        raise unknown_argument(function, name, known)
