"""What `@tool` accepts, and what it refuses where it is written."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest

from treadle import Agent, ToolContext, tool
from treadle.core.contracts.policy import BasePolicy, Deny, PermissionRequest, Verdict
from treadle.core.errors import ConfigError
from treadle.core.steps import AfterToolResult, ApprovalRequest
from treadle.core.transcript import ToolResultItem
from treadle.models import Say, Scripted
from treadle.tools.function import FunctionTool


async def run_call(agent_tool: Any, name: str, arguments: dict[str, Any], **settings: Any) -> str:
    agent = Agent(Scripted([Say(calls=[(name, arguments)]), "done"]), [agent_tool], **settings)
    transcript = (await agent.run("go")).transcript
    [result] = [item for item in transcript if isinstance(item, ToolResultItem)]
    return result.text


# --- options -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"nmae": "x"}, "no option `nmae`; did you mean `name`? It has"),
        ({"colour": "x"}, "no option `colour`. It has name, "),
        ({"effect": "none"}, "effect of a tool is 'none'; expected pure, verifiable or irreversi"),
        ({"name": ""}, "'' cannot be the name of a tool"),
        ({"name": "two words"}, "expected 1 to 64 letters, digits, _ or -"),
        ({"name": "x" * 65}, "cannot be the name of a tool"),
        ({"name": 3}, "name of a tool is 3; expected a text"),
        ({"timeout": -1}, "timeout of a tool is -1; expected a number of seconds above 0"),
        ({"timeout": 0}, "timeout of a tool is 0"),
        ({"timeout": True}, "timeout of a tool is True"),
        ({"detach_after": -1}, "detach_after of a tool is -1; expected a number of seconds"),
        ({"max_result_chars": 0}, "max_result_chars of a tool is 0; expected a whole number of 1"),
        ({"approval": "yes"}, "approval of a tool is 'yes'; expected True or False"),
        ({"probe": print}, "probe of a tool is never called for the effect irreversible; expected"),
        ({"effect": "verifiable"}, "is 'verifiable', and it has no `probe`; give the function"),
        ({"access": "files"}, "access of a tool is 'files'; expected a function"),
    ],
)
def test_a_wrong_option_is_refused_where_it_is_written(options, problem):
    def work() -> None: ...

    with pytest.raises(ConfigError) as caught:
        tool(work, **options)
    assert problem in str(caught.value)
    with pytest.raises(ConfigError):
        tool(**options)(work)


def test_a_function_without_a_usable_name_needs_one():
    with pytest.raises(ConfigError, match=r"'<lambda>' cannot be the name .* tool\(function, name"):
        tool(lambda: None)
    assert tool(lambda: None, name="nothing").spec.name == "nothing"


@pytest.mark.parametrize("value", [3, "text", None.__class__, int])
def test_what_is_no_function_is_refused(value):
    with pytest.raises(ConfigError):
        tool(value)


def test_a_tool_can_be_made_again_with_other_options():
    @tool(effect="pure")
    def add(a: int, b: int) -> int:
        "Add."
        return a + b

    other = tool(add, name="sum_up", timeout=3)
    assert (other.spec.name, other.spec.effect, other.spec.timeout) == ("sum_up", "pure", 3)
    assert add.spec.name == "add"
    assert other(1, 2) == 3


# --- what can be a tool ------------------------------------------------------------------


def test_a_decorated_function_still_looks_and_works_like_the_function():
    @tool
    def add(a: int, b: int = 2) -> int:
        "Add two numbers."
        return a + b

    assert add(3) == 5
    assert add(1, b=1) == 2
    assert list(inspect.signature(add).parameters) == ["a", "b"]
    assert (add.__name__, add.__doc__) == ("add", "Add two numbers.")


class Shop:
    def __init__(self, town: str) -> None:
        self.town = town

    @tool
    async def book(self, seats: int) -> str:
        "Book seats."
        return f"{seats} seats in {self.town}"

    @tool(effect="pure")
    @classmethod
    def brand(cls) -> str:
        return cls.__name__

    @staticmethod
    @tool(effect="pure")
    def add_tax(price: int) -> int:
        return price * 2

    def close(self, reason: str) -> str:
        return f"{self.town} closed: {reason}"


async def test_a_method_is_a_tool_of_its_object():
    oslo, rome = Shop("Oslo"), Shop("Rome")
    assert await run_call(oslo.book, "book", {"seats": 2}) == "2 seats in Oslo"
    assert await run_call(rome.book, "book", {"seats": 3}) == "3 seats in Rome"
    assert await oslo.book(4) == "4 seats in Oslo"
    assert list(oslo.book.spec.schema["properties"]) == ["seats"]
    assert list(inspect.signature(oslo.book).parameters) == ["seats"]
    assert await run_call(Shop.brand, "brand", {}) == "Shop"
    assert await run_call(oslo.add_tax, "add_tax", {"price": 2}) == "4"
    assert await run_call(oslo.close, "close", {"reason": "fire"}) == "Oslo closed: fire"


def test_a_method_without_its_object_is_refused_by_the_agent():
    with pytest.raises(ConfigError, match=r"Shop\.book is a method without its object"):
        Agent(Scripted([]), [Shop.book])


async def test_partials_and_objects_that_can_be_called_are_tools():
    async def book(town: str, seats: int, *, hint: str = "none") -> str:
        "Book seats."
        return f"{town} {seats} {hint}"

    class Greeter:
        """Greets people."""

        def __call__(self, name: str) -> str:
            return f"Hello, {name}"

    first = tool(functools.partial(book, "Oslo"))
    assert (first.spec.name, first.spec.description) == ("book", "Book seats.")
    assert list(first.spec.schema["properties"]) == ["seats", "hint"]
    assert await run_call(first, "book", {"seats": 2}) == "Oslo 2 none"
    second = tool(functools.partial(book, town="Rome", hint="x"), name="book_rome")
    assert await run_call(second, "book_rome", {"seats": 2}) == "Rome 2 x"
    again = tool(functools.partial(tool(book), town="Bonn"), name="book_bonn")
    assert await run_call(again, "book_bonn", {"seats": 1}) == "Bonn 1 none"
    greeter = tool(Greeter(), name="greet")
    assert greeter.spec.description == "Greets people."
    assert await run_call(greeter, "greet", {"name": "Ada"}) == "Hello, Ada"


async def test_parameters_that_have_only_a_position_are_given_by_position():
    @tool
    def power(base: int, exponent: int = 2, /, *, unit: str = "") -> str:
        return f"{base**exponent}{unit}"

    assert await run_call(power, "power", {"base": 3}) == "9"
    assert await run_call(power, "power", {"base": 2, "exponent": 3, "unit": "m"}) == "8m"


# --- the context -------------------------------------------------------------------------


class Till:
    """What a run depends on."""


async def test_the_context_is_recognised_in_every_spelling():
    async def bare(context: ToolContext) -> str:
        return context.call_id

    async def generic(n: int, context: ToolContext[Till]) -> str:
        return context.call_id

    async def optional(context: ToolContext[Till] | None = None) -> str:
        return context.call_id if context else ""

    async def as_text(context: ToolContext[Till]) -> str:
        return context.call_id

    as_text.__annotations__["context"] = "SomeModule.ToolContext[Till]"
    for function, deps in ((bare, None), (generic, Till), (optional, Till), (as_text, None)):
        made: FunctionTool[..., Any] = tool(function)
        assert "context" not in made.spec.schema["properties"]
        assert made.deps_type is deps
    assert await run_call(tool(optional), "optional", {}, deps_type=Any) == "call_1"
    assert await run_call(tool(as_text), "as_text", {}) == "call_1"


def test_two_contexts_are_one_too_many():
    def work(one: ToolContext[None], two: ToolContext[None]) -> None: ...

    with pytest.raises(ConfigError, match="one and two are both a ToolContext"):
        tool(work)


def test_a_type_that_cannot_be_found_is_an_error_and_not_anything():
    def work(n) -> None: ...

    work.__annotations__["n"] = "Missing"
    with pytest.raises(ConfigError, match="the type of n, 'Missing', cannot be found"):
        tool(work)


def test_a_type_of_the_function_around_is_found():
    class Size:
        def __init__(self, n: int) -> None: ...

    Sizes = dict[str, int]  # noqa: N806 - a type

    @tool
    def measure(sizes: Sizes) -> None: ...

    assert measure.spec.schema["properties"]["sizes"]["type"] == "object"


# --- approval ----------------------------------------------------------------------------


@tool(effect="pure", approval=True)
def pay(amount: int) -> str:
    "Pay."
    return f"paid {amount}"


async def test_a_tool_that_needs_approval_is_decided_by_the_user_without_any_policy():
    asked: list[str] = []

    def approve(approval: Any) -> bool:
        asked.append(approval.reason)
        return True

    assert await run_call(pay, "pay", {"amount": 3}, approve=approve) == "paid 3"
    assert asked == ["every call of `pay` needs the user's approval"]


async def test_without_an_approver_the_model_reads_why_it_was_denied():
    text = await run_call(pay, "pay", {"amount": 3})
    assert text == (
        "denied: this call needs the user's approval, and the user cannot be asked "
        "(every call of `pay` needs the user's approval)"
    )


async def test_an_approval_stops_the_loop_and_edited_arguments_are_run():
    model = Scripted([Say(calls=[("pay", {"amount": 3})]), "done"])
    driver = Agent(model, [pay]).start(prompt="go")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    request.approve(request.pending[0].call.id, arguments={"amount": 2})
    step = await driver.next()
    assert isinstance(step, AfterToolResult)
    assert "paid 2" in driver.transcript[-1].text
    await driver.aclose()


async def test_what_the_policy_denies_stays_denied():
    class Closed(BasePolicy):
        async def decide(self, request: PermissionRequest) -> Verdict:
            return Deny("closed today")

    text = await run_call(pay, "pay", {"amount": 3}, policy=Closed(), approve=lambda _: True)
    assert text == "denied: closed today"


@pytest.mark.parametrize(
    ("option", "function", "words"),
    [
        ("access", lambda: None, r"\(arguments\)"),
        ("check", lambda: None, r"\(arguments\)"),
        ("preview", lambda: None, r"\(arguments\)"),
        ("undo", lambda arguments: None, r"\(arguments, result\)"),
        ("evidence", lambda arguments: None, r"\(arguments, context\)"),
        ("probe", lambda arguments: None, r"\(arguments, evidence, context\)"),
    ],
)
def test_a_function_of_other_parameters_is_an_error_where_it_is_written(option, function, words):
    with pytest.raises(
        ConfigError, match=f"{option} of a tool is .* expected a function of {words}"
    ):
        tool(pay, effect="verifiable", **{option: function})
