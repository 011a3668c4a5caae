"""The slash commands in the editor: a table, and the user's own (conversation/custom_commands.py).

What an editor does itself (sessions, models, modes, diffs) is not here. A command answers with text
or sends a message to the model. Used by session.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from acp.schema import AvailableCommand, AvailableCommandInput, UnstructuredCommandInput

from treadle.apps.assembly.command_files import CustomCommand, find_custom_commands
from treadle.apps.conversation import trust_dialog
from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.custom_commands import begins_with_path
from treadle.apps.conversation.host import FileChange
from treadle.apps.conversation.init_prompt import INIT_PROMPT
from treadle.apps.conversation.local_host import LocalHost
from treadle.apps.conversation.modes import describe_mode
from treadle.apps.conversation.costs import describe_thinking, list_purposes
from treadle.core.errors import SessionNotFound, TreadleError
from treadle.core.transcript.content import Text, UserContent
from treadle.lib.text.text import format_dollars, suggest

if TYPE_CHECKING:
    from treadle.apps.acp.questions import EditorQuestions


class CommandAnswer(msgspec.Struct, frozen=True):
    """`text` is for the user, `message` for the model. `is_reopened`: the driver is a new one."""

    text: str = ""
    message: tuple[UserContent, ...] = ()
    is_reopened: bool = False


RunEditorCommand = Callable[[LocalHost, "EditorQuestions", str], Awaitable[CommandAnswer]]


class EditorCommand(msgspec.Struct, frozen=True):
    name: str
    summary: str
    run: RunEditorCommand
    hint: str = ""


def list_available(host: LocalHost, custom: Sequence[CustomCommand]) -> list[AvailableCommand]:
    """All commands, as the editor completes them; prompts of MCP servers are commands, too."""
    rows = [(one.name, one.summary, one.hint) for one in COMMANDS]
    rows += [(one.name, one.summary or str(one.file), "arguments") for one in custom]
    hints = host.list_prompt_hints()
    rows += [(name, summary, hints[name]) for name, summary in host.list_prompts()]
    return [
        AvailableCommand(
            name=name,
            description=summary,
            input=AvailableCommandInput(root=UnstructuredCommandInput(hint=hint)) if hint else None,
        )
        for name, summary, hint in rows
    ]


def find_custom(host: LocalHost) -> tuple[list[CustomCommand], list[str]]:
    """The user's commands, those of a trusted folder, and a line for each that was skipped."""
    folders = [host.folder] if host.is_trusted else []
    return find_custom_commands([*folders, Path.home()], home=Path.home())


async def run_command(
    line: str, host: LocalHost, questions: EditorQuestions, custom: Sequence[CustomCommand]
) -> CommandAnswer | None:
    """Run `/name arguments`; None if the line is a message that begins with a path."""
    names = [one.name for one in list_available(host, custom)]
    if begins_with_path(line, names.__contains__):
        return None
    name, _, arguments = line.removeprefix("/").partition(" ")
    arguments = arguments.strip()
    for command in COMMANDS:
        if command.name == name:
            return await command.run(host, questions, arguments)
    for own in custom:
        if own.name == name:
            item = await host.expand_command(own, arguments)
            return CommandAnswer(message=item.content)
    try:
        prompt = await host.expand_prompt(name, arguments)
    except TreadleError as error:
        return CommandAnswer(str(error))
    if prompt is not None:
        return CommandAnswer(message=prompt.content)
    nearest = suggest(name, names)
    hint = f"Did you mean /{nearest}?" if nearest else f"There are /{', /'.join(names)}."
    return CommandAnswer(f"There is no command /{name}. {hint}")


# ------------------------------------------------------------------ the commands


async def _init(host: LocalHost, questions: EditorQuestions, arguments: str) -> CommandAnswer:
    return CommandAnswer(message=(Text(f"{INIT_PROMPT}\n{arguments}".strip()),))


async def _compact(host: LocalHost, questions: EditorQuestions, arguments: str) -> CommandAnswer:
    if await host.driver.compact(arguments):
        return CommandAnswer("The history for the model is shorter now.")
    return CommandAnswer("Nothing was compacted: the history is short already.")


async def _undo(host: LocalHost, questions: EditorQuestions, arguments: str) -> CommandAnswer:
    include = [arguments] if arguments else []
    try:
        changes = await host.preview_undo(include)
    except SessionNotFound:  # it is on disk from its first message on
        return CommandAnswer("There is nothing to undo: this session is new.")
    if not await _agrees(questions, "Undo these file changes?", changes):
        return CommandAnswer("Nothing was changed.")
    return CommandAnswer(await host.undo(include))


async def _redo(host: LocalHost, questions: EditorQuestions, arguments: str) -> CommandAnswer:
    include = [arguments] if arguments else []
    try:
        changes = await host.preview_redo(include)
    except SessionNotFound:
        return CommandAnswer("There is nothing to redo: this session is new.")
    if not await _agrees(questions, "Bring back these file changes?", changes):
        return CommandAnswer("Nothing was changed.")
    return CommandAnswer(await host.redo(include))


async def _agrees(questions: EditorQuestions, title: str, changes: Sequence[FileChange]) -> bool:
    message = "\n".join(f"- {one.sign} {one.path}{one.note}" for one in changes)
    options = [ChoiceOption("yes", "Yes"), ChoiceOption("no", "No")]
    return await questions.choose(title, options, message=message) == "yes"


async def _cost(host: LocalHost, questions: EditorQuestions, arguments: str) -> CommandAnswer:
    from treadle.models.catalog import compute_thinking_cost

    usage = host.driver.total_usage
    thinking = describe_thinking(usage, compute_thinking_cost(host.model.name, usage))
    cost = "not known" if usage.cost is None else format_dollars(usage.cost)
    purposes = ", ".join(f"{name} {price}" for name, price in list_purposes(host.driver.session_id))
    return CommandAnswer(
        f"Cost of this session: {cost}. Tokens: {usage.total_input:,} in "
        f"({usage.cache_read:,} from the cache), {usage.output:,} out{thinking}; "
        f"{usage.requests} requests.{purposes and f' By purpose: {purposes}.'}"
    )


async def _permissions(
    host: LocalHost, questions: EditorQuestions, arguments: str
) -> CommandAnswer:
    rows = [f"- `{rule}` ({origin})" for rule, origin in host.list_permissions()]
    rules = "\n".join(rows) or "There are no rules."
    return CommandAnswer(f"Mode {describe_mode(host.mode)}.\n\n{rules}")


async def _trust(host: LocalHost, questions: EditorQuestions, arguments: str) -> CommandAnswer:
    was_trusted = host.is_trusted
    if await trust_dialog.ask_again(host, questions.choose):
        await host.reopen()
        text = "The programs of this folder are approved and run now."
        trusted = "This folder is trusted: its own files take effect now."
        return CommandAnswer(text if was_trusted else trusted, is_reopened=True)
    return CommandAnswer("This folder is trusted." if was_trusted else "It is not trusted.")


async def _remember(host: LocalHost, questions: EditorQuestions, arguments: str) -> CommandAnswer:
    if not arguments:
        return CommandAnswer("Usage: /remember TEXT")
    return CommandAnswer(f"Added to {await host.remember(arguments)}.")


async def _goal(host: LocalHost, questions: EditorQuestions, arguments: str) -> CommandAnswer:
    if not arguments:
        shown = f"`{host.goal}`" if host.goal else "none"
        return CommandAnswer(f"The goal is {shown}. Usage: /goal COMMAND, or /goal off")
    goal = "" if arguments == "off" else arguments
    await host.change_goal(goal)
    text = f"Every turn continues until this succeeds: `{goal}`" if goal else "The goal is removed."
    return CommandAnswer(text, is_reopened=True)


COMMANDS: tuple[EditorCommand, ...] = (
    EditorCommand("init", "let the agent write AGENTS.md", _init),
    EditorCommand("compact", "shorten the history for the model", _compact, "what to keep"),
    EditorCommand(
        "undo", "undo the file changes of the last turn", _undo, "also this file, which you changed"
    ),
    EditorCommand("redo", "redo what /undo undid", _redo, "also this file, which you changed"),
    EditorCommand("goal", "continue every turn until a command succeeds", _goal, "command, or off"),
    EditorCommand("cost", "show tokens and cost of this session", _cost),
    EditorCommand("permissions", "list the permission rules", _permissions),
    EditorCommand("trust", "trust this folder and its programs", _trust),
    EditorCommand("remember", "add a line to AGENTS.md or CLAUDE.md", _remember, "text"),
)
