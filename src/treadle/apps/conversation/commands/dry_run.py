"""`/dry-run` and `/apply`: what the agent would change is recorded, then chosen and carried out."""

from __future__ import annotations

from treadle.apps.assembly.dry_run.recorded_calls import format_effects, select_effects
from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.answers import CommandAnswer, Question, ScreenChange
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.core.errors import ConfigError
from treadle.lib.text.text import plural

USAGE = "/apply all, /apply 1,3, or /apply edit 1 JSON, which gives a call other arguments"


async def run_dry_run(session: HostedSession, arguments: str) -> CommandAnswer:
    if arguments not in ("", "on", "off"):
        raise ConfigError("usage: /dry-run on, or /dry-run off")
    if arguments:
        await session.dry_run.change(is_on=arguments == "on")
    on = "a dry run: what would change something is recorded, and /apply carries it out"
    is_on = session.choices.dry_run
    return CommandAnswer(on if is_on else "no dry run: what the agent does is done")


async def run_apply(session: HostedSession, arguments: str) -> CommandAnswer:
    word, _, rest = arguments.partition(" ")
    if word == "edit":
        number, _, text = rest.partition(" ")
        session.dry_run.edit(number, text)
        arguments = ""
    effects = session.dry_run.list_effects()
    if not effects:
        return CommandAnswer("no recorded calls wait: /dry-run on records them")

    async def answer(value: str) -> CommandAnswer:
        if value in ("some", "edit"):
            numbers = ",".join(str(at) for at in range(1, len(effects) + 1))
            line = (
                f"/apply {numbers}" if value == "some" else f"/apply edit 1 {effects[0].call.raw}"
            )
            return CommandAnswer(USAGE, screen=ScreenChange("prompt", line))
        chosen = select_effects(effects, value)
        if not chosen:
            return CommandAnswer("nothing is carried out")
        return CommandAnswer(message=session.dry_run.start(chosen))

    if arguments:
        return await answer(arguments)
    options = [
        ChoiceOption("all", "All", key="a"),
        ChoiceOption("some", "Some of them", "their numbers, in the prompt", key="s"),
        ChoiceOption("edit", "Edit one", "its arguments, in the prompt", key="e"),
        ChoiceOption("", "Nothing now", "they wait", key="n"),
    ]
    title, message = f"Carry out {plural(len(effects), 'recorded call')}?", format_effects(effects)
    return CommandAnswer(question=Question(title, options, answer, message))
