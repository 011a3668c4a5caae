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

from treadle.core.contracts.tool import Probe, ToolContext, ToolOutput
from treadle.core.contracts.workspace import FileContent
from treadle.core.errors import ToolError, WorkspaceError
from treadle.core.transcript.content import Arguments
from treadle.tools.builtin.desk import Seat, Seen
from treadle.tools.builtin.form import BuiltinTool, Given, visible
from treadle.tools.builtin.text import Decoded, decoded, lines_of

MOST_EDITED = 16 << 20
MOST_COMPARED = 20_000
MOST_DIFF = 400
MOST_SHOWN = 60
LONG = 100_000
"""Texts from here on are searched and compared in a thread: all others would have to wait."""

Result = TypeVar("Result")


class Change(msgspec.Struct, frozen=True):
    """One file before and after. `after` None means that it goes away."""

    path: Path
    shown: str
    before: FileContent | None
    after: bytes | None
    old_text: str = ""
    new_text: str = ""
    mode: int | None = None

    @property
    def expected(self) -> str:
        return self.before.digest if self.before is not None else ""


class ChangingTool(BuiltinTool[Given], Generic[Given]):
    """A tool that changes files: verifiable, all or nothing."""

    effect = "verifiable"
    concurrent = True

    async def plan(self, given: Given, seat: Seat) -> list[Change]:
        raise NotImplementedError

    def confirmation(self, given: Given, changes: Sequence[Change]) -> str:
        raise NotImplementedError

    async def run(self, given: Given, seat: Seat) -> ToolOutput:
        changes = await self.plan(given, seat)

        def told() -> ToolOutput:
            display = "\n".join(diff for change in changes if (diff := diff_of(change)))
            return ToolOutput(self.confirmation(given, changes), display=visible(display))

        texts = [text for change in changes for text in (change.old_text, change.new_text)]
        output = await aside(told, *texts)  # before the change, which must not lose its answer
        await carry_out(changes, seat)
        return output

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        seat = self.desk.enter(arguments, context)
        try:
            changes = await self.plan(self.given(arguments), seat)
        except WorkspaceError as error:
            raise ToolError(str(error)) from error
        files = [
            {
                "path": str(change.path),
                "before": _sum(change.before.data) if change.before is not None else "",
                "after": _sum(change.after) if change.after is not None else "",
            }
            for change in changes
        ]
        return {"cwd": seat.cwd, "files": files}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> Probe:
        seat = self.desk.enter(arguments, context)
        done: list[str] = []
        not_done: list[str] = []
        for file in evidence["files"]:
            path = Path(file["path"])
            found = await seat.look(path)
            now = _sum(found.data) if found is not None else ""
            if now == file["after"]:
                done.append(str(path))
            elif now == file["before"]:
                not_done.append(str(path))
                if found is not None:  # it had been seen like this when the call was made
                    seat.notes.saw(path, Seen(found.digest, is_whole=True))
            else:
                return Probe("unknown", f"{path} is neither as it was nor as it was to become")
        if done and not_done:
            words = f"{', '.join(done)} is changed, {', '.join(not_done)} is not"
            return Probe("unknown", words)
        if not_done:
            # Tried again, it has to mean the same files: from where it was called, not from here.
            self.desk.move(context.session_id, evidence["cwd"])
            self.desk.note(arguments)
            return Probe("not_done", f"{', '.join(not_done)} is as it was")
        return Probe("done", f"{', '.join(done)} is as it was to become")


async def aside(work: Callable[[], Result], *texts: str) -> Result:
    """What work over these texts comes to, in a thread if they are long. It must be pure."""
    return work() if sum(map(len, texts)) < LONG else await asyncio.to_thread(work)


async def text_to_change(seat: Seat, path: Path, given: str) -> tuple[FileContent, Decoded]:
    """A text file that may be changed: it is there, it is text, and it is as it was seen."""
    content = await seat.look(path, MOST_EDITED)
    if content is None:
        raise await seat.missing(given, path)
    if content.is_truncated:
        raise ToolError(f"{given} has {content.size:,} bytes, too many to edit; use bash (sed)")
    refuse_if_changed(seat, path, content, given)
    text = decoded(content.data)
    if text is None:
        raise ToolError(f"{given} is not text; it cannot be edited like this")
    return content, text


def refuse_if_changed(seat: Seat, path: Path, content: FileContent, given: str) -> None:
    seen = seat.notes.seen.get(path)
    if seen is not None and seen.digest != content.digest:
        raise ToolError(
            f"{given} was changed since it was read, by the user, a command or another agent. "
            "Nothing was written. Read it again, then make the change on what is there now"
        )


def encoded_like(before: Decoded, text: str, given: str) -> bytes:
    try:
        return before.encoded(text)
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        raise ToolError(
            f"{given} is encoded as {before.encoding}, which has no {character!r}; "
            "write it in other characters, or convert the file to UTF-8 first (iconv)"
        ) from error


async def carry_out(changes: Sequence[Change], seat: Seat) -> None:
    """All of them; when one fails or we are cancelled, what was done is taken back."""
    begun: list[Change] = []
    try:
        for change in changes:
            begun.append(change)
            await _apply(change, seat)
    except (WorkspaceError, asyncio.CancelledError):
        for change in reversed(begun):
            with contextlib.suppress(WorkspaceError):  # somebody else has it now: theirs counts
                await _take_back(change, seat)
        raise


async def _apply(change: Change, seat: Seat) -> None:
    place = str(change.path)
    if change.after is None:
        await seat.workspace.remove(place, expected=change.expected)
        seat.notes.forget(change.path)
        return
    written = await seat.workspace.write(
        place, change.after, expected=change.expected, mode=change.mode
    )
    seat.notes.saw(change.path, Seen(written.digest, is_whole=True))


async def _take_back(change: Change, seat: Seat) -> None:
    place, before = str(change.path), change.before
    found = await seat.look(change.path)
    if (found.data if found is not None else None) != change.after:
        return  # it had not come to this one
    if before is None:
        assert found is not None, "what was made is there"
        await seat.workspace.remove(place, expected=found.digest)
        seat.notes.forget(change.path)
    else:
        digest = found.digest if found is not None else ""
        written = await seat.workspace.write(place, before.data, expected=digest, mode=before.mode)
        seat.notes.saw(change.path, Seen(written.digest, is_whole=True))


def diff_of(change: Change) -> str:
    """For the person: a unified diff, the rest of a very long one left out."""
    old, new = lines_of(change.old_text), lines_of(change.new_text)
    if len(old) + len(new) > MOST_COMPARED:
        return f"{change.shown}: {len(old)} lines before, {len(new)} after"
    before = f"a/{change.shown}" if change.before is not None else "/dev/null"
    after = f"b/{change.shown}" if change.after is not None else "/dev/null"
    lines = list(unified_diff(old, new, before, after, lineterm=""))
    more = len(lines) - MOST_DIFF
    return "\n".join(lines[:MOST_DIFF] + ([f"... {more} more lines"] if more > 0 else []))


def changed_lines(change: Change) -> str:
    """For the model: the changed lines as they are now, numbered, with two around them."""
    old, new = lines_of(change.old_text), lines_of(change.new_text)
    if len(old) + len(new) > MOST_COMPARED:
        return ""
    shown: list[str] = []
    for number, group in enumerate(SequenceMatcher(None, old, new).get_grouped_opcodes(2)):
        if number:
            shown.append("   ...")
        shown += _numbered(new, group[0][3], group[-1][4])
    more = len(shown) - MOST_SHOWN
    return "\n".join(shown[:MOST_SHOWN] + ([f"   ... {more} more lines"] if more > 0 else []))


def _numbered(lines: Sequence[str], start: int, end: int) -> Iterator[str]:
    for number in range(start, end):
        yield f"{number + 1:>6}\t{lines[number][:500]}"


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
