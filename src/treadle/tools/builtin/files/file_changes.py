"""Changes of files: planned, applied or reverted as a whole, and checked after a crash.

Shared by `write`, `edit` and `apply_patch`. A plan reads and computes and changes nothing; each
file is then written only if it is still what the plan read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from treadle.core.contracts.tool import Preview, ProbeResult, ToolContext, ToolOutput
from treadle.core.contracts.workspace import FileContent
from treadle.core.errors import ToolError, WorkspaceError
from treadle.core.transcript.content import Arguments
from treadle.lib.text.text import plural
from treadle.tools.builtin.base import ArgumentsT, BuiltinTool, escape_multiline
from treadle.tools.builtin.file_text import (
    DecodedText,
    decode_text,
    format_numbered_lines,
    split_lines,
)
from treadle.tools.builtin.session_memory import CallSite, SeenFile

MAX_EDIT_BYTES = 16 << 20
MAX_COMPARED_LINES = 20_000
MAX_DIFF_LINES = 400
MAX_WHOLE_LINES = 10_000
MAX_SHOWN_LINES = 60
THREAD_THRESHOLD_CHARS = 100_000
"""Longer texts are searched and compared in a thread, so that the event loop stays free."""

_T = TypeVar("_T")


class PlannedChange(msgspec.Struct, frozen=True):
    """One file before and after. `after` None means that the file is removed."""

    path: Path
    display_path: str
    before: FileContent | None
    after: bytes | None
    old_text: str = ""
    new_text: str = ""
    mode: int | None = None
    note: str = ""  # what was corrected to find it, for the model

    @property
    def expected_digest(self) -> str:
        return self.before.digest if self.before is not None else ""


class FileChangeTool(BuiltinTool[ArgumentsT], Generic[ArgumentsT]):
    """A tool that changes files: verifiable, all or nothing.

    `needs_whole_file`: it changes a file only if the session has seen all of it.
    """

    kind = "edit"
    effect = "verifiable"
    needs_policy = True
    needs_whole_file: ClassVar[bool] = False

    async def plan(self, args: ArgumentsT, site: CallSite) -> list[PlannedChange]:
        raise NotImplementedError

    def format_confirmation(self, args: ArgumentsT, changes: Sequence[PlannedChange]) -> str:
        raise NotImplementedError

    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        changes = await self._plan_checked(arguments, self.sessions.make_call_site(context))
        return Preview(
            "diff",
            _join_diffs(changes),
            changes[0].display_path if changes else "",
            _join_whole_diffs(changes),
            {str(change.path): change.after for change in changes},
        )

    async def _plan_checked(self, arguments: Arguments, site: CallSite) -> list[PlannedChange]:
        """The plan; ToolError if the changes cannot be made."""
        try:
            return await self.plan(self.parse_arguments(arguments), site)
        except WorkspaceError as error:
            raise ToolError(str(error)) from error

    async def run(self, args: ArgumentsT, site: CallSite) -> ToolOutput:
        changes = await self.plan(args, site)

        def make_output() -> ToolOutput:
            text, display = self.format_confirmation(args, changes), _join_diffs(changes)
            data = {"changed_files": [str(change.path) for change in changes]}
            notes = tuple([change.note for change in changes if change.note])
            return ToolOutput(text, escape_multiline(display), data=data, notes=notes)

        texts = [text for change in changes for text in (change.old_text, change.new_text)]
        # Made before the change: a problem with the output must not hide that it was applied.
        output = await run_in_thread_if_long(make_output, *texts)
        await apply_changes(changes, site)
        return output

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        site = self.sessions.make_call_site(context)
        changes = await self._plan_checked(arguments, site)
        files = [
            {
                "path": str(change.path),
                "before": _sha256(change.before.data) if change.before is not None else "",
                "after": _sha256(change.after) if change.after is not None else "",
            }
            for change in changes
        ]
        return {"cwd": site.cwd, "files": files}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        site = self.sessions.make_call_site(context)
        done: list[str] = []
        not_done: list[str] = []
        for file in evidence["files"]:
            path = Path(file["path"])
            content = await site.read_if_exists(path)
            now = _sha256(content.data) if content is not None else ""
            if now == file["after"]:
                done.append(str(path))
            elif now == file["before"]:
                not_done.append(str(path))
                if content is not None:  # the session had seen it like this before the call
                    seen = SeenFile(content.digest, is_complete=self.needs_whole_file)
                    site.session.record_seen(path, seen)
            else:
                problem = f"{path} is neither in its old nor in its intended state"
                return ProbeResult("unknown", problem)
        if done and not_done:
            partial = f"{', '.join(done)} is changed, {', '.join(not_done)} is not"
            return ProbeResult("unknown", partial)
        if not_done:
            # A second try must change the same files: use the working directory of the first.
            self.sessions.set_cwd(context.session_id, evidence["cwd"])
            return ProbeResult("not_done", f"{', '.join(not_done)} is unchanged")
        return ProbeResult("done", f"{', '.join(done)} is changed as intended")


async def run_in_thread_if_long(work: Callable[[], _T], *texts: str) -> _T:
    """The result of `work` over these texts, in a thread if they are long. It must be pure."""
    is_long = sum(map(len, texts)) >= THREAD_THRESHOLD_CHARS
    return await asyncio.to_thread(work) if is_long else work()


async def read_editable_text(
    site: CallSite, path: Path, given: str
) -> tuple[FileContent, DecodedText]:
    """A text file that may be changed: it exists, is text, and is as the session last saw it."""
    content = await site.read_if_exists(path, MAX_EDIT_BYTES)
    if content is None:
        raise await site.make_not_found_error(given, path)
    if content.is_truncated:
        raise ToolError(f"{given} has {content.size:,} bytes, too many to edit; use bash (sed)")
    require_unchanged(site, path, content, given)
    text = decode_text(content.data)
    if text is None:
        raise ToolError(f"{given} is not text; it cannot be edited with this tool")
    return content, text


def require_unchanged(site: CallSite, path: Path, content: FileContent, given_path: str) -> None:
    seen = site.session.seen_files.get(path)
    if seen is not None and not site.is_planned(path) and seen.digest != content.digest:
        raise ToolError(
            f"{given_path} was changed since it was read, by the user, a command or another agent. "
            "Nothing was written. Read it again, then make the change on what is there now"
        )


def encode_utf8(text: str) -> bytes:
    """The content of a new file."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(
            f"the content has half a surrogate pair (half an emoji) at character {error.start}; "
            "nothing was written. Send the whole character"
        ) from error


def encode_like(before: DecodedText, text: str, given_path: str) -> bytes:
    try:
        return before.encode(text)
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        raise ToolError(
            f"{given_path} is encoded as {before.encoding}, which has no {character!r}; "
            "use other characters, or convert the file to UTF-8 first (iconv)"
        ) from error


async def apply_changes(changes: Sequence[PlannedChange], site: CallSite) -> None:
    """Apply all of them; if one fails or the call is cancelled, revert those that were applied."""
    begun: list[tuple[PlannedChange, bool]] = []
    try:
        for change in changes:
            was_seen = _is_seen_whole(change, site)
            begun.append((change, was_seen))
            await _apply_change(change, site, is_seen_whole=was_seen or not change.old_text)
    except (WorkspaceError, asyncio.CancelledError):
        for change, was_seen in reversed(begun):
            with contextlib.suppress(WorkspaceError):  # changed by another writer: keep theirs
                await _revert_change(change, site, is_seen_whole=was_seen)
        raise


def _is_seen_whole(change: PlannedChange, site: CallSite) -> bool:
    seen = site.session.seen_files.get(change.path)
    return seen is not None and seen.is_complete


async def _apply_change(change: PlannedChange, site: CallSite, *, is_seen_whole: bool) -> None:
    path, expected = str(change.path), change.expected_digest
    if change.after is None:
        await site.workspace.remove(path, expected=expected)
        site.session.forget(change.path)
        return
    written = await site.workspace.write(path, change.after, expected=expected, mode=change.mode)
    site.session.record_seen(change.path, SeenFile(written.digest, is_complete=is_seen_whole))


async def _revert_change(change: PlannedChange, site: CallSite, *, is_seen_whole: bool) -> None:
    path, before = str(change.path), change.before
    now = await site.read_if_exists(change.path)
    if (now.data if now is not None else None) != change.after:
        return  # this one was not applied
    if before is None:
        assert now is not None, "a created file exists"
        await site.workspace.remove(path, expected=now.digest)
        site.session.forget(change.path)
    else:
        digest = now.digest if now is not None else ""
        written = await site.workspace.write(path, before.data, expected=digest, mode=before.mode)
        site.session.record_seen(change.path, SeenFile(written.digest, is_complete=is_seen_whole))


def _join_diffs(changes: Sequence[PlannedChange]) -> str:
    return "\n".join(diff for change in changes if (diff := format_diff(change)))


def _join_whole_diffs(changes: Sequence[PlannedChange]) -> str:
    """The diffs with all lines of the files; "" if these are too many to show."""
    lines = sum(
        text.count("\n") for change in changes for text in (change.old_text, change.new_text)
    )
    if lines > MAX_WHOLE_LINES:
        return ""
    return "\n".join(format_diff(change, context=MAX_WHOLE_LINES) for change in changes)


def format_diff(change: PlannedChange, context: int = 3) -> str:
    """For the user: a unified diff, the rest of a very long one left out. `context`: how many
    unchanged lines it shows around the changed ones."""
    old, new = split_lines(change.old_text), split_lines(change.new_text)
    if len(old) + len(new) > MAX_COMPARED_LINES:
        return f"{change.display_path}: {len(old)} lines before, {len(new)} after"
    before = f"a/{change.display_path}" if change.before is not None else "/dev/null"
    after = f"b/{change.display_path}" if change.after is not None else "/dev/null"
    from difflib import unified_diff

    lines = list(unified_diff(old, new, before, after, lineterm="", n=context))
    return _join_limited(lines, max(MAX_DIFF_LINES, context))


def format_changed_lines(change: PlannedChange) -> str:
    """For the model: the changed lines as they are now, numbered, with two lines of context."""
    old, new = split_lines(change.old_text), split_lines(change.new_text)
    if len(old) + len(new) > MAX_COMPARED_LINES:
        return ""
    shown: list[str] = []
    from difflib import SequenceMatcher

    for number, group in enumerate(SequenceMatcher(None, old, new).get_grouped_opcodes(2)):
        if number:
            shown.append("...")
        shown += format_numbered_lines(new, group[0][3], group[-1][4])
    return _join_limited(shown, MAX_SHOWN_LINES)


def _join_limited(lines: Sequence[str], limit: int) -> str:
    more = len(lines) - limit
    rest = [f"... {plural(more, 'more line')}"] if more > 0 else []
    return "\n".join([*lines[:limit], *rest])


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
