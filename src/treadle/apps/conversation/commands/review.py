"""`/review` and `/init`: messages to the model that start a review or write AGENTS.md.

A read-only child agent reviews the working tree, commits, or what a text describes; the model
starts it (agents/agent_definition.py) and gives its findings as the answer, so they are part of the
session and can be worked on. Policy protects AGENTS.md: what is written is approved first.
"""

from __future__ import annotations

import shlex

from treadle.apps.conversation.commands.answers import CommandAnswer
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import ConfigError
from treadle.core.transcript.items import to_user_item

REVIEW_TEMPLATE = """\
Start one agent of the kind `review` with the task tool, in the foreground, with this prompt:

{task}

Then answer with its findings as they are, each with file and line, the worst first. \
Change nothing."""
WORKING_TREE = (
    "Review the uncommitted changes of the working tree: `git diff HEAD`, and the new files that "
    "`git status --short` lists."
)
NO_REPOSITORY = "this folder is not in a git repository"
USAGE = (
    "/review reviews the uncommitted changes, /review RANGE commits (main..HEAD, HEAD~3), "
    "/review TEXT what the text describes"
)
INIT_PROMPT = """\
Look around in this project and write a file AGENTS.md at its root for coding agents that will \
work here: how to build, test (all, and a single one) and lint it; how it is laid out; the \
conventions that its code follows and that are not obvious. Read what is there before you write: \
the README, build files, a few sources, and an AGENTS.md or CLAUDE.md if there is one already, \
which you improve instead. Only what is true and useful, in at most 60 lines."""


async def run_init(session: HostedSession, arguments: str) -> CommandAnswer:
    return CommandAnswer(message=to_user_item(f"{INIT_PROMPT}\n{arguments}".strip()))


async def run_review(session: HostedSession, arguments: str) -> CommandAnswer:
    task = await _describe_task(session, arguments)
    return CommandAnswer(message=to_user_item(REVIEW_TEMPLATE.format(task=task)))


async def _describe_task(session: HostedSession, arguments: str) -> str:
    status = await read_git(session, "status --porcelain")
    if status is None:
        if not arguments:
            raise ConfigError(f"{NO_REPOSITORY}; {USAGE}")
        return f"Review what this describes:\n{arguments}"
    if not arguments:
        if not status:
            raise ConfigError(f"there are no uncommitted changes; {USAGE}")
        return WORKING_TREE
    first, _, rest = arguments.partition(" ")
    if await _is_revision(session, first):
        range_ = first if ".." in first else f"{first}..HEAD"
        return describe_commits(range_, rest)
    if ".." in first and not rest:
        raise ConfigError(f"git does not know the commits {first}; {USAGE}")
    return f"Review what this describes, also if it is the text of a pull request:\n{arguments}"


def describe_commits(range_: str, focus: str = "") -> str:
    added = f" The user adds: {focus.strip()}" if focus.strip() else ""
    shown, commits = shlex.quote(range_), shlex.quote(range_.replace("...", ".."))
    return f"Review the commits {range_}: `git log {commits}` and `git diff {shown}`.{added}"


async def _is_revision(session: HostedSession, word: str) -> bool:
    if word.startswith("-"):
        return False
    command = f"rev-list --max-count=1 {shlex.quote(word)} --"
    return await read_git(session, command) is not None


async def read_git(session: HostedSession, command: str) -> str | None:
    """Its output; None if git fails, or is not there."""
    result = await run_git(session, command)
    return result.output.strip() if result.exit_code == 0 else None


async def run_git(session: HostedSession, arguments: str) -> CommandResult:
    """Run git: in the sandbox where there is one, and without the hooks and the file monitor of the
    folder, which may not be trusted."""
    from treadle.lib.git.run import SAFE_SETTINGS

    settings = " ".join(f"-c {setting}" for setting in SAFE_SETTINGS)
    return await session.run_command(f"git {settings} --no-pager {arguments}")
