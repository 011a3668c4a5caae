"""What a permission verdict costs: Python calls, files of ours that take part, and time.

A fresh line in a warm process, from the policy's `decide`, with the rules that the coding agent has
in a folder without settings. Comprehensions and resumed generators count as calls.

    python benchmarks/verdict.py            # fails above the limits
    python benchmarks/verdict.py --list     # with the files
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from msgspec.structs import replace

from treadle.core.contracts.policy import PermissionRequest
from treadle.core.contracts.tool import Access, ToolSpec
from treadle.lib.shell.syntax.parser import parse_command
from treadle.permissions.policy import RulePolicy, build_policy_context

LINES = ("git status && cat a.txt | head -3", "npm test")
MAX_CALLS = 300
MAX_FILES = {"plain folder": 12, "repository": 14}  # the two are git's configuration and index
ROUNDS = 300
SOURCE = "/src/treadle/"
BASH = ToolSpec("bash", "", {})


def fill_folder(kind: str, folder: str) -> None:
    """A file; in a repository, with an index."""
    Path(folder, "a.txt").write_text("a\n")
    if kind == "repository":
        for words in (("init", "-q"), ("add", ".")):
            subprocess.run(["git", "-C", folder, *words], check=True)


def make_policy(folder: str) -> RulePolicy:
    context = build_policy_context(folder)
    return RulePolicy(replace(context, tools_skip_denied=True, sandbox_hides_denied=True),
                      sandboxed=True)  # fmt: skip


def decide(policy: RulePolicy, line: str, folder: str) -> str:
    access = Access(command=line, cwd=folder)
    request = PermissionRequest("s", "c", BASH, {}, "", access)
    return type(asyncio.run(policy.decide(request))).__name__


def count_calls(policy: RulePolicy, line: str, folder: str) -> tuple[str, Counter[str]]:
    """The verdict, and the calls in each of our files."""
    seen: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        _, is_ours, name = frame.f_code.co_filename.partition(SOURCE)
        if event == "call" and is_ours:
            seen[name] += 1

    parse_command.cache_clear()
    sys.setprofile(note)
    try:
        verdict = decide(policy, line, folder)
    finally:
        sys.setprofile(None)
    return verdict, seen


def measure(policy: RulePolicy, line: str, folder: str) -> float:
    """Microseconds of a verdict on a line that was not seen before, without the event loop."""
    access = Access(command=line, cwd=folder)
    request = PermissionRequest("s", "c", BASH, {}, "", access)

    async def repeat() -> float:
        began = time.perf_counter()
        for _ in range(ROUNDS):
            parse_command.cache_clear()
            await policy.decide(request)
        return (time.perf_counter() - began) / ROUNDS * 1e6

    return asyncio.run(repeat())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="show the files")
    options = parser.parse_args()
    is_within = True
    for kind, max_files in MAX_FILES.items():
        with tempfile.TemporaryDirectory() as folder:
            fill_folder(kind, folder)
            policy = make_policy(folder)
            for line in LINES:
                decide(policy, line, folder)
            for line in LINES:
                verdict, seen = count_calls(policy, line, folder)
                calls, files = seen.total(), len(seen)
                took = measure(policy, line, folder)
                counted = f"{calls:4} calls {files:3} files {took:5.0f} µs"
                print(f"{kind:13} {line:35} {verdict:5} {counted}")
                if options.list:
                    print("".join(f"    {count:4} {name}\n" for name, count in seen.most_common()))
                is_within &= calls <= MAX_CALLS and files <= max_files
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())
