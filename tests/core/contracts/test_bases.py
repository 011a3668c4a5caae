"""Bases and wrappers of contracts: one method changed, the rest has its default."""

from __future__ import annotations

from treadle import Agent, ToolOutput
from treadle.core.contracts.hook import HookInput, HookPoint
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.policy import Ask, BasePolicy, PermissionRequest
from treadle.core.contracts.tool import Access, BaseTool, FileAccess, Preview, ToolSpec
from treadle.core.contracts.wrapped import WrappedTool
from treadle.core.events import Event, ToolFinished
from treadle.core.steps import ApprovalRequest
from treadle.models import Say, Scripted
from treadle.testing.tools import RecordingTool


class Deploy(BaseTool):
    spec = ToolSpec("deploy", "Deploy it.", {"type": "object", "properties": {}})

    def access(self, arguments, session_id):
        return Access(files=(FileAccess("site", "write"),), cwd="/srv")

    async def preview(self, arguments, context):
        return Preview("text", f"would deploy from {context.access.cwd}")

    async def call(self, arguments, context):
        return ToolOutput(f"deployed from {context.access.cwd}")


class AskAboutAll(BasePolicy):
    def __init__(self) -> None:
        self.requests: list[PermissionRequest] = []

    async def decide(self, request):
        self.requests.append(request)
        return Ask("deploying needs an approval")


class Finished(BaseObserver):
    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, ToolFinished):
            self.outcomes.append(event.outcome)


async def test_the_policy_and_the_user_see_what_the_call_touches():
    policy, seen = AskAboutAll(), Finished()
    agent = Agent(
        Scripted([Say(calls=[("deploy", {})]), "Done."]),
        [Deploy()],
        policy=policy,
        observers=[seen],
    )
    driver = agent.start(prompt="go")
    step = await driver.next()
    assert isinstance(step, ApprovalRequest)
    assert step.pending[0].preview == Preview("text", "would deploy from /srv")
    assert step.pending[0].access.files == (FileAccess("site", "write"),)
    assert policy.requests[0].access.cwd == "/srv"
    step.approve_all()
    await driver.next()
    assert driver.transcript[-1].text == "deployed from /srv"
    assert seen.outcomes == ["finished"]
    await driver.aclose()


async def test_a_denied_call_says_so_by_its_outcome():
    seen = Finished()
    agent = Agent(
        Scripted([Say(calls=[("deploy", {})]), "Sorry."]),
        [Deploy()],
        policy=AskAboutAll(),
        approve=lambda request: False,
        observers=[seen],
    )
    result = await agent.run("go")
    assert seen.outcomes == ["denied"]
    assert [item.outcome for item in result.transcript if hasattr(item, "outcome")] == ["denied"]


async def test_a_wrapper_changes_one_method():
    class Loud(WrappedTool):
        async def call(self, arguments, context):
            output = await super().call(arguments, context)
            return ToolOutput(str(output.content).upper())

    agent = Agent(Scripted([Say(calls=[("deploy", {})]), "Done."]), [Loud(Deploy())])
    result = await agent.run("go")
    assert "DEPLOYED FROM /SRV" in [getattr(item, "text", "") for item in result.transcript]


async def test_a_hook_before_an_effect_sees_calls_that_are_not_pure_and_lets_others_start_early():
    class BeforeEffect:
        points: frozenset[HookPoint] = frozenset({"before_effect"})

        def __init__(self) -> None:
            self.names: list[str] = []

        async def run(self, hook_input: HookInput) -> None:
            self.names.append(hook_input.data["tool_name"])

    hook = BeforeEffect()
    look, put = RecordingTool("look", effect="pure"), RecordingTool("put", effect="irreversible")
    model = Scripted([Say(calls=[("look", {}), ("put", {})]), "Done."])
    agent = Agent(model, [look, put], hooks=[hook])
    await agent.run("go")
    assert hook.names == ["put"]
