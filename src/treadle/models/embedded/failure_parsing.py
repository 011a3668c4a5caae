"""What a failing check tells: which lines of its output matter, and which files to look at.

Pure functions over texts. repair.py asks them; they know nothing of models or transcripts.
"""

from __future__ import annotations

import re
import shlex
import sys

_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)')
_RAISED = re.compile(r"^\w[\w.]*(Error|Exception|Warning|Exit|Interrupt)\b")
_FAILED_TEST = re.compile(r"^(FAIL|ERROR): (\w+)")
_FILE = re.compile(r"[\w./-]*\w\.(?:py|sh|js|ts|rb|go|rs|c|h|cpp|java|pl|lua|php)\b")
_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import|import\s+([\w.]+))", re.MULTILINE)
_FAILURE_WORD = re.compile(
    r"\b(Traceback|FAIL(ED|URE|ures?)?|Error|Exception|assert\w*|expected|failed|not found)\b",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"\s*\d+(?:\t|→|\s?[|:] ?)(.*)$")
_COMMAND = re.compile(r"`([^`\n]{2,200})`")
_REPAIR_REQUEST = re.compile(
    r"\b(fix|repair|bug|broken|fails?|failing|pass(es)?|wrong)\b", re.IGNORECASE
)

EXCERPT_LINES = 6


def has_failure(text: str) -> bool:
    return _FAILURE_WORD.search(text) is not None


def find_check_command(user_text: str) -> str:
    """The command that must pass, if somebody who wants a repair named one in backticks."""
    if _REPAIR_REQUEST.search(user_text) is None:
        return ""
    for command in _COMMAND.findall(user_text):
        if " " in command and not command.startswith("-"):
            return str(command)
    return ""


def find_goal_command(notice: str) -> str:
    """The command that a goal's notice names first."""
    found = _COMMAND.search(notice)
    return found[1] if found is not None and "goal" in notice[: found.start()].lower() else ""


def extract_failure(output: str) -> str:
    """The few lines of a check's output that say what is wrong: the first failure only."""
    lines = output.strip().splitlines()
    kept: list[str] = []
    for place, line in enumerate(lines):
        if named := _FAILED_TEST.match(line):
            kept.append(named[0])
        elif _FRAME.match(line) and place + 1 < len(lines):
            kept.append(lines[place + 1].strip())
        elif _RAISED.match(line):
            kept.append(line)
            break
    if not kept:
        kept = [line for line in lines if has_failure(line)] or lines[-EXCERPT_LINES:]
    return "\n".join(line[:160] for line in kept[-EXCERPT_LINES:])


def find_file_names(*texts: str) -> list[str]:
    """The files that these texts mention, each once, without folders of the machine's own."""
    found: dict[str, None] = {}
    for text in texts:
        for match in _FILE.finditer(text):
            found.setdefault(match[0], None)
    return [name for name in found if "/lib/python" not in name and "site-packages" not in name]


def find_imported_files(path: str, source: str) -> list[str]:
    """The neighbours that a Python source imports; other sources: the files they name."""
    folder = path.rpartition("/")[0]
    if not path.endswith(".py"):
        names = [name for name in find_file_names(source) if "/" not in name]
    else:
        modules = [one or other for one, other in _IMPORT.findall(source)]
        own = [name for name in modules if name.split(".")[0] not in sys.stdlib_module_names]
        names = [name.strip(".").replace(".", "/") + ".py" for name in own if name.strip(".")]
    return [f"{folder}/{name}" if folder else name for name in dict.fromkeys(names)]


def find_command_files(command: str) -> list[str]:
    """The files that a check command names, also as `python -m unittest test_x`."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    files = [word for word in words if _FILE.fullmatch(word)]
    if not files and "-m" in words:
        rest = words[words.index("-m") + 2 :]
        files = [f"{w.replace('.', '/')}.py" for w in rest if re.fullmatch(r"[\w.]+", w)]
    return files


def is_test_file(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith("test") or "_test." in name or ".test." in name or ".spec." in name


def strip_line_numbers(text: str) -> str:
    """A file as it is, from a tool that shows it with line numbers and a remark at the end."""
    lines = text.splitlines()
    numbered = [_NUMBERED.match(line) for line in lines]
    if lines and numbered[0] is not None:
        last = max(place for place, match in enumerate(numbered) if match is not None)
        if all(match is not None for match in numbered[: last + 1]):
            lines = [match[1] for match in numbered[: last + 1] if match is not None]
    return "\n".join(lines) + ("\n" if lines else "")
