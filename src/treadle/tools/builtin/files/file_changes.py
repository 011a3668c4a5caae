"""Changes of files: planned whole, compared, carried out or taken back, and checked after a crash.

What `write`, `edit` and `apply_patch` share. A plan reads and computes, it touches nothing; each
file is then written only if it still is what the plan saw.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher, unified_diff
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from treadle.core.contracts.tool import ProbeResult, ToolContext, ToolOutput
from treadle.core.contracts.workspace import FileContent
from treadle.core.errors import ToolError, WorkspaceError
from treadle.core.transcript.content import Arguments
from treadle.tools.builtin.base import ArgumentsT, BuiltinTool, escape_multiline
from treadle.tools.builtin.session import CallSite, SeenFile
from treadle.tools.builtin.text import DecodedText, decode_text, split_lines

MAX_EDIT_BYTES = 16 << 20
MAX_COMPARED_LINES = 20_000
MAX_DIFF_LINES = 400
MAX_SHOWN_LINES = 60
THREAD_THRESHOLD_CHARS = 100_000
"""Texts from here on are searched and compared in a thread: all others would have to wait."""

_T = TypeVar("_T")


class PlannedChange(msgspec.Struct, frozen=True):
    """One file before and after. `after` None means that it goes away."""

    path: Path
    display_path: str
    before: FileContent | None
    after: bytes | None
    old_text: str = ""
    new_text: str = ""
    mode: int | None = None

    @property
    def expected_digest(self) -> str:
        return self.before.digest if self.before is not None else ""


class FileChangeTool(BuiltinTool[ArgumentsT], Generic[ArgumentsT]):
    """A tool that changes files: verifiable, all or nothing."""

    effect = "verifiable"
    concurrent = True

    async def plan(self, args: ArgumentsT, site: CallSite) -> list[PlannedChange]:
        raise NotImplementedError

    def format_confirmation(self, args: ArgumentsT, changes: Sequence[PlannedChange]) -> str:
        raise NotImplementedError

    async def run(self, args: ArgumentsT, site: CallSite) -> ToolOutput:
        changes = await self.plan(args, site)

        def told() -> ToolOutput:
            display = "\n".join(diff for change in changes if (diff := format_diff(change)))
            return ToolOutput(
                self.format_confirmation(args, changes), display=escape_multiline(display)
            )

        texts = [text for change in changes for text in (change.old_text, change.new_text)]
        output = await run_in_thread_if_long(
            told, *texts
        )  # before the change, which must not lose its answer
        await apply_changes(changes, site)
        return output

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        seat = self.sessions.make_call_site(context)
        try:
            changes = await self.plan(self.parse_arguments(arguments), seat)
        except WorkspaceError as error:
            raise ToolError(str(error)) from error
        files = [
            {
                "path": str(change.path),
                "before": _sha256(change.before.data) if change.before is not None else "",
                "after": _sha256(change.after) if change.after is not None else "",
            }
            for change in changes
        ]
        return {"cwd": seat.cwd, "files": files}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        seat = self.sessions.make_call_site(context)
        done: list[str] = []
        not_done: list[str] = []
        for file in evidence["files"]:
            path = Path(file["path"])
            found = await seat.read_if_exists(path)
            now = _sha256(found.data) if found is not None else ""
            if now == file["after"]:
                done.append(str(path))
            elif now == file["before"]:
                not_done.append(str(path))
                if found is not None:  # it had been seen like this when the call was made
                    seat.session.record_seen(path, SeenFile(found.digest, is_complete=True))
            else:
                return ProbeResult(
                    "unknown", f"{path} is neither as it was nor as it was to become"
                )
        if done and not_done:
            words = f"{', '.join(done)} is changed, {', '.join(not_done)} is not"
            return ProbeResult("unknown", words)
        if not_done:
            # Tried again, it has to mean the same files: from where it was called, not from here.
            self.sessions.set_cwd(context.session_id, evidence["cwd"])
            return ProbeResult("not_done", f"{', '.join(not_done)} is as it was")
        return ProbeResult("done", f"{', '.join(done)} is as it was to become")


async def run_in_thread_if_long(work: Callable[[], _T], *texts: str) -> _T:
    """What work over these texts comes to, in a thread if they are long. It must be pure."""
    return (
        work() if sum(map(len, texts)) < THREAD_THRESHOLD_CHARS else await asyncio.to_thread(work)
    )


async def read_editable_text(
    site: CallSite, path: Path, given_path: str
) -> tuple[FileContent, DecodedText]:
    """A text file that may be changed: it is there, it is text, and it is as it was seen."""
    content = await site.read_if_exists(path, MAX_EDIT_BYTES)
    if content is None:
        raise await site.make_not_found_error(given_path, path)
    if content.is_truncated:
        raise ToolError(
            f"{given_path} has {content.size:,} bytes, too many to edit; use bash (sed)"
        )
    require_unchanged(site, path, content, given_path)
    text = decode_text(content.data)
    if text is None:
        raise ToolError(f"{given_path} is not text; it cannot be edited like this")
    return content, text


def require_unchanged(site: CallSite, path: Path, content: FileContent, given_path: str) -> None:
    seen = site.session.seen_files.get(path)
    if seen is not None and seen.digest != content.digest:
        raise ToolError(
            f"{given_path} was changed since it was read, by the user, a command or another agent. "
            "Nothing was written. Read it again, then make the change on what is there now"
        )


def encode_like(before: DecodedText, text: str, given_path: str) -> bytes:
    try:
        return before.encode(text)
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        raise ToolError(
            f"{given_path} is encoded as {before.encoding}, which has no {character!r}; "
            "write it in other characters, or convert the file to UTF-8 first (iconv)"
        ) from error


async def apply_changes(changes: Sequence[PlannedChange], site: CallSite) -> None:
    """All of them; when one fails or we are cancelled, what was done is taken back."""
    begun: list[PlannedChange] = []
    try:
        for change in changes:
            begun.append(change)
            await _apply_change(change, site)
    except (WorkspaceError, asyncio.CancelledError):
        for change in reversed(begun):
            with contextlib.suppress(WorkspaceError):  # somebody else has it now: theirs counts
                await _revert_change(change, site)
        raise


async def _apply_change(change: PlannedChange, site: CallSite) -> None:
    place = str(change.path)
    if change.after is None:
        await site.workspace.remove(place, expected=change.expected_digest)
        site.session.forget(change.path)
        return
    written = await site.workspace.write(
        place, change.after, expected=change.expected_digest, mode=change.mode
    )
    site.session.record_seen(change.path, SeenFile(written.digest, is_complete=True))


async def _revert_change(change: PlannedChange, site: CallSite) -> None:
    place, before = str(change.path), change.before
    found = await site.read_if_exists(change.path)
    if (found.data if found is not None else None) != change.after:
        return  # it had not come to this one
    if before is None:
        assert found is not None, "what was made is there"
        await site.workspace.remove(place, expected=found.digest)
        site.session.forget(change.path)
    else:
        digest = found.digest if found is not None else ""
        written = await site.workspace.write(place, before.data, expected=digest, mode=before.mode)
        site.session.record_seen(change.path, SeenFile(written.digest, is_complete=True))


def format_diff(change: PlannedChange) -> str:
    """For the person: a unified diff, the rest of a very long one left out."""
    old, new = split_lines(change.old_text), split_lines(change.new_text)
    if len(old) + len(new) > MAX_COMPARED_LINES:
        return f"{change.display_path}: {len(old)} lines before, {len(new)} after"
    before = f"a/{change.display_path}" if change.before is not None else "/dev/null"
    after = f"b/{change.display_path}" if change.after is not None else "/dev/null"
    lines = list(unified_diff(old, new, before, after, lineterm=""))
    more = len(lines) - MAX_DIFF_LINES
    return "\n".join(lines[:MAX_DIFF_LINES] + ([f"... {more} more lines"] if more > 0 else []))


def format_changed_lines(change: PlannedChange) -> str:
    """For the model: the changed lines as they are now, numbered, with two around them."""
    old, new = split_lines(change.old_text), split_lines(change.new_text)
    if len(old) + len(new) > MAX_COMPARED_LINES:
        return ""
    shown: list[str] = []
    for number, group in enumerate(SequenceMatcher(None, old, new).get_grouped_opcodes(2)):
        if number:
            shown.append("   ...")
        shown += _number_lines(new, group[0][3], group[-1][4])
    more = len(shown) - MAX_SHOWN_LINES
    return "\n".join(shown[:MAX_SHOWN_LINES] + ([f"   ... {more} more lines"] if more > 0 else []))


def _number_lines(lines: Sequence[str], start: int, end: int) -> Iterator[str]:
    for number in range(start, end):
        yield f"{number + 1:>6}\t{lines[number][:500]}"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
