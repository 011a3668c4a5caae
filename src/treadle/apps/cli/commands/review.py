"""`treadle review`: a review of commits, or of what is not committed, with its findings as data.

A run of `treadle -p` in the mode plan whose answer has a schema; its exit code says whether
anything was found. `/review` is the same in a conversation (apps/conversation/commands/review.py).
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.apps.cli.headless import HeadlessRun
from treadle.apps.cli.options import parse_command_line
from treadle.apps.cli.output import RunReport
from treadle.apps.cli.signals import reopen_closed_streams
from treadle.apps.console import exit_codes
from treadle.apps.console.console import UsageError, command, get_current_folder, print_error
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import plural

if TYPE_CHECKING:
    from treadle.apps.assembly import AgentSession
    from treadle.apps.cli.stream_json import StreamJsonWriter

HELP = """\
usage: treadle review [BASE..HEAD | BASE] [--json] [--model NAME] [--max-cost USD] [--max-time 10m]
                      [--quiet] [--verbose]

Reviews commits (a BASE alone: up to HEAD; BASE...HEAD: since both parted), or without them the
uncommitted changes. Reads only. Options that are settings are as for `treadle -p`.
  --json   print the report of the run as JSON: `output.findings` is a list of
           {file, line, severity: error|warning|note, title, detail}

Exit codes: 0 nothing found · 1 findings · 2 an error, or a wrong command line · others as for -p"""

MAX_DIFF_CHARS = 200_000
TOO_LONG = (
    "The change is too long to be shown whole. Read these files, too, each with "
    "`git diff --no-ext-diff --no-textconv REVISIONS -- PATH`:"
)
NEW_FILES = "Read these files, too: they are new, and git does not know them yet."
HIDDEN = "These are not shown, since a rule denies that you read them, or they may have secrets:"
NO_CHANGES = "there are no changes"
ONE_RANGE = "{} ranges given; it reviews one BASE..HEAD"
WITHOUT_RANGE = "without an argument it reviews the uncommitted changes"
FOUND = 1
FAILED = 2
SEVERITIES = ("error", "warning", "note")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "summary": {"type": "string", "description": "the review in one or two sentences"},
        "findings": {
            "type": "array",
            "description": "what is wrong, the worst first; empty if nothing is",
            "items": {
                "type": "object",
                "properties": {
                    "file": {"type": "string", "description": "its path in the repository"},
                    "line": {"type": "integer", "description": "in the new file; 0: all of it"},
                    "severity": {"type": "string", "enum": list(SEVERITIES)},
                    "title": {"type": "string", "description": "one line"},
                    "detail": {"type": "string", "description": "what happens, how to see it"},
                },
                "required": ["file", "line", "severity", "title", "detail"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["summary", "findings"],
    "additionalProperties": False,
}
_OPTIONS = {"model", "quiet", "verbose", "sandbox", "add_dir"}


@command("treadle review", HELP)
def run(arguments: list[str]) -> int:
    has_output = reopen_closed_streams()
    words = [word for word in arguments if word != "--json"]
    line = parse_command_line(words, ONE_RANGE)
    line.options["permission_mode"] = "plan"
    allowed = _OPTIONS | set(line.settings())
    if wrong := sorted(set(line.options) - allowed):
        raise UsageError(f"--{wrong[0].replace('_', '-')} is not an option of review")
    if line.prompt is not None and not line.prompt.strip():
        # A script with an unset variable must not pass without a review.
        raise UsageError(f"the range is empty; {WITHOUT_RANGE}")
    if len(words) != len(arguments):
        line.options["output_format"] = "json"
    folder = get_current_folder()
    revisions = line.prompt or ""
    task = asyncio.run(_describe_change(folder, revisions))
    if not task:
        print_error(f"treadle review: {NO_CHANGES}")
        if line.text("output_format") == "json":
            _print_empty_report()
        return exit_codes.SUCCESS
    name = f"review of {revisions or 'the uncommitted changes'}"
    return _review(folder, task, name, line, has_output)


def _print_empty_report() -> None:
    from treadle.observe.jsonlines import encode_line

    output = {"summary": NO_CHANGES, "findings": []}
    text = format_findings(NO_CHANGES, [])
    report = RunReport(reason="end_turn", exit_code=exit_codes.SUCCESS, text=text, output=output)
    print(encode_line(report).decode(), end="", flush=True)


def _review(folder: Path, task: str, name: str, line: Any, has_output: bool) -> int:
    from treadle.agents.agent_definition import REVIEW_AGENT
    from treadle.apps.settings.folder_rules import is_trusted
    from treadle.apps.settings.load import load_settings
    from treadle.core.transcript.content import Text

    settings = load_settings(folder, line.settings(), is_trusted=lambda: is_trusted(folder))
    prompt = (Text(f"{REVIEW_AGENT.prompt}\n\n{task}"),)
    review = _ReviewRun(line, settings, folder, prompt, SCHEMA, has_output)
    review.name = name
    return asyncio.run(review.run())


class _ReviewRun(HeadlessRun):
    """A run whose report has the findings as text, and whose exit code tells of them. `name` is
    that of its session."""

    name = ""

    async def _build_session(self, stream_json: StreamJsonWriter | None) -> AgentSession:
        from treadle.apps.assembly.sessions import get_session_dir
        from treadle.sessions.library import Library

        session = await super()._build_session(stream_json)
        Library().rename(get_session_dir(session.store), self.name)
        return session

    def _complete_report(self, report: RunReport) -> RunReport:
        report, code = super()._complete_report(report), report.exit_code
        if report.output is not None:
            findings = report.output["findings"]
            text = format_findings(report.output["summary"], findings)
            report = msgspec.structs.replace(report, text=text)
            if code == exit_codes.SUCCESS and findings:
                return msgspec.structs.replace(report, exit_code=FOUND)
        failed = FAILED if code == exit_codes.ERROR else code
        return msgspec.structs.replace(report, exit_code=failed)

    def _print_summary(self, report: RunReport) -> None:
        """Without how to continue it: that would be no review, and exit with 0 for findings."""
        super()._print_summary(msgspec.structs.replace(report, session_id=""))


def format_findings(summary: str, findings: list[dict[str, Any]]) -> str:
    """As compilers write it: FILE:LINE: SEVERITY: TITLE, then the detail."""
    lines = []
    for one in findings:
        place = f"{one['file']}:{one['line']}" if one["line"] > 0 else one["file"]
        lines.append(escape_invisible(f"{place}: {one['severity']}: {one['title']}"))
        lines += [f"    {escape_invisible(row)}" for row in one["detail"].splitlines()]
    count = plural(len(findings), "finding")
    return "\n".join([*lines, f"{count}. {escape_invisible(summary)}"])


async def _describe_change(folder: Path, revisions: str) -> str:
    """What the model is told to review; "" if there is nothing. Raises UsageError."""
    from treadle.apps.conversation.commands.review import (
        NO_REPOSITORY,
        WORKING_TREE,
        describe_commits,
    )
    from treadle.apps.settings.folder_rules import load_rules, make_read_check
    from treadle.lib.git.diff import (
        list_changed,
        list_new_files,
        make_reading_environment,
        read_diff,
    )
    from treadle.lib.git.run import GitError, run_git

    try:
        top = await run_git(folder, "rev-parse", "--show-toplevel", environment=os.environ)
        environment = await make_reading_environment(folder, os.environ)
    except GitError as error:
        raise UsageError(f"{NO_REPOSITORY}: {error}") from error
    range_ = revisions if ".." in revisions or not revisions else f"{revisions}..HEAD"
    if range_:
        known = ("rev-list", "--max-count=1", "--end-of-options", range_, "--")
        try:
            await run_git(folder, *known, environment=environment)
        except GitError as error:
            raise UsageError(f"git does not know the commits {range_}: {error}") from error
    try:
        changed = await list_changed(folder, range_, environment)
        new = [] if range_ else await list_new_files(folder, environment)
        is_unreadable = make_read_check(folder, load_rules(folder)[0])
        every = (*changed, *new)
        hidden = [path for path in every if is_unreadable(Path(top.rstrip("\n"), path))]
        diff = await read_diff(folder, range_, environment, hidden)
    except GitError as error:
        raise UsageError(f"the change cannot be read: {error}") from error
    if not changed and not new:
        return ""
    about = describe_commits(range_) if range_ else WORKING_TREE
    return "\n\n".join(
        [about, *_format_change(diff, [path for path in new if path not in hidden], hidden)]
    )


def _format_change(diff: list[str], new: list[str], hidden: list[str]) -> list[str]:
    """The diff, as far as it is not too long, and the names of what the model has to read."""
    from treadle.apps.assembly.redaction import find_environment_secrets, redact
    from treadle.lib.git.diff import make_readable

    texts = list[str]()
    shown, left_out, size = list[str](), list[str](), 0
    for part in diff:
        size += len(part)
        shown += [part] if size <= MAX_DIFF_CHARS else []
        left_out += [] if size <= MAX_DIFF_CHARS else [part.partition("\n")[0]]
    if shown:
        text = redact(find_environment_secrets(), "\n".join(shown))
        texts.append(f"The change:\n<diff>\n{text}\n</diff>")
    if left_out:
        texts.append("\n".join([TOO_LONG, *left_out]))
    if new:
        texts.append("\n".join([NEW_FILES, *map(make_readable, new)]))
    if hidden:
        texts.append("\n".join([HIDDEN, *map(make_readable, hidden)]))
    return texts
