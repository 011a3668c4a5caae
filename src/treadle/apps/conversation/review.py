"""`/review`: a read-only child agent reviews the working tree, commits, or what a text describes.

The model starts the agent (agents/agent_definition.py) and gives its findings as the answer, so
they are part of the session and can be worked on. Used by the terminal and the page.
"""

from __future__ import annotations

import shlex

from treadle.apps.conversation.host import Host
from treadle.core.errors import ConfigError
from treadle.core.transcript.items import UserItem, to_user_item

REVIEW_TEMPLATE = """\
Start one agent of the kind `review` with the task tool, in the foreground, with this prompt:

{task}

Then answer with its findings as they are, each with file and line, the worst first. \
Change nothing."""
WORKING_TREE = (
    "Review the uncommitted changes of the working tree: `git diff HEAD`, and the new files that "
    "`git status --short` lists."
)
USAGE = (
    "/review reviews the uncommitted changes, /review RANGE commits (main..HEAD, HEAD~3), "
    "/review TEXT what the text describes"
)


async def build_review(host: Host, arguments: str) -> UserItem:
    """The message that starts the review; ConfigError if there is nothing to review."""
    return to_user_item(REVIEW_TEMPLATE.format(task=await _describe_task(host, arguments.strip())))


async def _describe_task(host: Host, arguments: str) -> str:
    status = await _run_git(host, "status --porcelain")
    if status is None:
        if not arguments:
            raise ConfigError(f"this folder is not in a git repository; {USAGE}")
        return f"Review what this describes:\n{arguments}"
    if not arguments:
        if not status:
            raise ConfigError(f"there are no uncommitted changes; {USAGE}")
        return WORKING_TREE
    first, _, rest = arguments.partition(" ")
    if await _is_revision(host, first):
        range_ = first if ".." in first else f"{first}..HEAD"
        focus = f" The user adds: {rest.strip()}" if rest.strip() else ""
        shown = shlex.quote(range_)
        return f"Review the commits {range_}: `git log {shown}` and `git diff {shown}`.{focus}"
    if ".." in first and not rest:
        raise ConfigError(f"git does not know the commits {first}; {USAGE}")
    return f"Review what this describes, also if it is the text of a pull request:\n{arguments}"


async def _is_revision(host: Host, word: str) -> bool:
    if word.startswith("-"):
        return False
    command = f"rev-list --max-count=1 {shlex.quote(word)} --"
    return await _run_git(host, command) is not None


async def _run_git(host: Host, command: str) -> str | None:
    """Its output; None if git fails, or is not there."""
    result = await host.run_git(command)
    return result.output.strip() if result.exit_code == 0 else None
