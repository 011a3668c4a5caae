"""Runs ripgrep, without its configuration file and without following symlinks.

Used by `glob` and `grep`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container, Sequence
from functools import partial
from pathlib import Path

import msgspec

from treadle.core.contracts.workspace import ProgramResult
from treadle.core.errors import ToolError, WorkspaceError
from treadle.lib.files.ripgrep import find_ripgrep
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.tools.builtin.session_memory import CallSite

TIMEOUT = 30.0
MAX_LEFT_OUT = 10
_GLOB_CHARACTER, _QUOTE = re.compile(r"[\\*?\[\]{}!]"), r"\\\g<0>"
MAX_OUTPUT_BYTES = 16 << 20
# Hidden files are searched, but not the folders of version control: of several globs the last
# one counts.
DEFAULT_OPTIONS = ("--no-config", "--color=never", "--hidden")
LAST_OPTIONS = ("--glob=!.git", "--glob=!.jj", "--glob=!.hg")

MIN_SENTENCE_WORDS = 3
_WORD = compile_lazily(r"[^\W\d_][\w'’-]*|\d+")
_ESCAPED_SPACE, _ESCAPED_EDGE = compile_lazily(r"\\s[+*]?"), compile_lazily(r"\\[bB<>]|\\(?=\W)")
_AROUND_WORDS = "\"'`“”„‘’«»()?:;,.!…^$"


def explain_sentence(pattern: str, kind: str) -> str:
    """What to do after a search for a sentence that found nothing; "" for other patterns."""
    text = _ESCAPED_EDGE.sub("", _ESCAPED_SPACE.sub(" ", pattern))
    words = (word.strip(_AROUND_WORDS) for word in text.split())
    if len([word for word in words if _WORD.fullmatch(word)]) < MIN_SENTENCE_WORDS:
        return ""
    return (
        f" The words are searched as {kind}, not by what they mean: search for one word that must "
        "be there, such as a name in the code, or several as `one|two`."
    )


async def run_ripgrep(
    site: CallSite, options: Sequence[str], given_path: str
) -> tuple[ProgramResult, Path]:
    """Run it over a folder or a file: its result, and the folder that its paths start from."""
    path, is_outside = site.resolve_readable(given_path)
    execute = partial(site.execute_on, path) if is_outside else site.execute
    try:
        return await _run_in_folder(execute, options, path, "./"), path
    except WorkspaceError as error:
        if error.kind != "bad_cwd":
            raise
    try:  # not a folder: search it as a file
        return await _run_in_folder(execute, options, path.parent, f"./{path.name}"), path.parent
    except (ToolError, WorkspaceError) as error:
        if is_outside:
            raise ToolError(f"{given_path} does not exist, or cannot be searched") from error
        if await site.read_if_exists(path, 0) is None:
            raise await site.make_not_found_error(given_path, path) from error
        raise


async def run_with_glob(
    site: CallSite, options: Sequence[str], glob: str, given_path: str
) -> tuple[ProgramResult, Path, Container[bytes]]:
    """The same with a glob, and the files that count: for ripgrep a glob also matches files that
    the project ignores."""
    done, top = await run_ripgrep(site, [f"--glob={glob}", *options], given_path)
    if not done.stdout:
        return done, top, ()
    listed, _ = await run_ripgrep(site, ["--files", "--null"], given_path)
    is_truncated = done.is_truncated or listed.is_truncated
    timed_out = done.timed_out or listed.timed_out
    done = msgspec.structs.replace(done, is_truncated=is_truncated, timed_out=timed_out)
    return done, top, frozenset(listed.stdout.split(b"\0"))


async def _run_in_folder(
    execute: Callable[..., Awaitable[ProgramResult]],
    options: Sequence[str],
    folder: Path,
    target: str,
) -> ProgramResult:
    program = find_ripgrep()
    if program is None:
        raise ToolError("ripgrep is not installed; search with bash (grep -rn, find) instead")
    # Run inside the folder: ripgrep applies patterns with a slash to paths from its cwd.
    argv = [program, *DEFAULT_OPTIONS, *options, *LAST_OPTIONS, "--", target]
    done = await execute(argv, timeout=TIMEOUT, limit=MAX_OUTPUT_BYTES, cwd=folder)
    if done.exit_code not in (0, 1) and not done.stdout and not done.timed_out:
        message = done.stderr.decode(errors="replace").strip().removeprefix("rg: ")
        raise ToolError(message[:2_000] or f"ripgrep failed with exit code {done.exit_code}")
    return done


async def find_left_out(
    site: CallSite, filters: Sequence[str], given_path: str
) -> tuple[list[str], str]:
    """Options that leave out the files that a rule denies and those that may contain secrets, and
    a note that names them. A secret that the call itself names was asked about, and is searched.

    Found before the search: whether a denied file matches must not be told either."""
    get = site.sessions.get_find_denied
    find_denied = await get() if get is not None else None
    if find_denied is None:
        return [], ""
    listed, top = await run_ripgrep(site, ["--files", "--null", *filters], given_path)
    if listed.timed_out or listed.is_truncated:
        raise ToolError("there are too many files to check which may be read; narrow the path")
    names = [name.removeprefix(b"./") for name in listed.stdout.split(b"\0")[:-1]]
    paths = {f"{top}/{name.decode(errors='surrogateescape')}": name for name in names}
    named, _ = site.resolve_readable(given_path)
    searched = [path for path in paths if path != str(named)]
    denied = sorted(path[len(str(top)) + 1 :] for path in find_denied(searched))
    if not denied:
        return [], ""
    format_path = make_formatter(top, site)
    shown = [format_path(name.encode(errors="surrogateescape")) for name in denied[:MAX_LEFT_OUT]]
    more = f" and {len(denied) - len(shown)} more" if len(denied) > len(shown) else ""
    listed_names = f"{', '.join(shown)}{more}"
    note = f"\n(not searched, because a rule denies it or it may contain secrets: {listed_names})"
    return [f"--glob=!/{re.sub(_GLOB_CHARACTER, _QUOTE, name)}" for name in denied], note


def make_formatter(folder: Path, site: CallSite) -> Callable[[bytes], str]:
    """Ripgrep's paths as the model would write them. Works on text only: there may be thousands."""
    top = site.display_path(folder)
    prefix = "" if top == "." else top.rstrip("/") + "/"
    return lambda name: prefix + name.removeprefix(b"./").decode(errors="replace")


def incomplete_warning(done: ProgramResult) -> str:
    """A note on why the result is incomplete; "" if it is complete."""
    if done.timed_out:
        return f"\n(stopped after {TIMEOUT:g} s; there may be more: narrow the path or the pattern)"
    if done.is_truncated:
        return "\n(too much output; narrow the path or the pattern)"
    if done.exit_code in (0, 1):
        return ""
    problems = done.stderr.decode(errors="replace").strip().replace("rg: ", "").split("\n")
    more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
    return f"\n(incomplete; not searched: {'; '.join(problems[:3])[:500]}{more})"
