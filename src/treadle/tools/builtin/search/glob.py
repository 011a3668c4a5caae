"""`glob`: files by name, sorted by path; ignored files are left out."""

import re
from heapq import nsmallest
from typing import ClassVar

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ToolError
from treadle.lib.text.text import plural
from treadle.tools.builtin.base import FOLDER_ALIASES, BuiltinTool
from treadle.tools.builtin.search.ripgrep import (
    explain_sentence,
    incomplete_warning,
    make_formatter,
    run_with_glob,
)
from treadle.tools.builtin.session_memory import CallSite

MAX_RESULTS = 200


class GlobArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    path: str = ""


class GlobTool(BuiltinTool[GlobArguments]):
    name = "glob"
    kind = "search"
    arguments_type = GlobArguments
    aliases = ("find_files", "glob_search", "find", "file_glob", "glob_file_search")
    argument_aliases: ClassVar = {
        **FOLDER_ALIASES, "glob": "pattern", "query": "pattern", "glob_pattern": "pattern",
    }  # fmt: skip

    def validate(self, args: GlobArguments) -> str | None:
        if not args.pattern:
            return "the pattern is empty"
        if ".." in args.pattern.split("/"):
            return "the pattern may not contain `..`; give the folder as `path`"
        return None

    @classmethod
    def read_paths(cls, args: GlobArguments) -> tuple[str, ...]:
        return (_split_pattern(args)[0],)

    async def run(self, args: GlobArguments, site: CallSite) -> ToolOutput:
        folder, pattern = _split_pattern(args)
        pattern = pattern.removeprefix("./")
        done, top, listed = await run_with_glob(site, ["--files", "--null"], pattern, folder)
        paths = [path for path in done.stdout.split(b"\0")[:-1] if path in listed]
        warning = incomplete_warning(done)
        if not paths:
            advice = explain_sentence(args.pattern, "the name of a file")
            text = f"No files match {args.pattern}.{advice}{warning}"
            return ToolOutput(text, "No files")
        format_path = make_formatter(top, site)
        names = [format_path(path) for path in nsmallest(MAX_RESULTS, paths)]
        more = len(paths) - len(names)
        rest = f"\n({more} more; narrow the pattern or the path)" if more > 0 else ""
        return ToolOutput("\n".join(names) + rest + warning, f"Found {plural(len(paths), 'file')}")


def _split_pattern(args: GlobArguments) -> tuple[str, str]:
    """The folder to search, and the pattern below it: an absolute pattern holds both."""
    if not args.pattern.startswith(("/", "~")):
        return args.path or ".", args.pattern
    if args.path:
        raise ToolError("the pattern is absolute; leave out `path`")
    fixed = re.split(r"[*?\[{]", args.pattern)[0].rpartition("/")[0] or "/"
    return fixed, args.pattern[len(fixed) :].lstrip("/")
