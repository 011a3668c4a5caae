"""Parses a failing check: which lines of its output matter, which files are involved.

Pure functions of texts. Used by repair.py, line_edits.py and answer_template.py. They know
nothing of models or transcripts.
"""

from __future__ import annotations

import re
import shlex
import sys

_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)')
_RAISED = re.compile(r"^\w[\w.]*(Error|Exception|Warning|Exit|Interrupt)\b")
_PYTEST_FRAME = re.compile(r"^\S+\.py:\d+: in \w+")
_PYTEST_ERROR = re.compile(r"^E\s+(.*\S)")
_NO_CHECK = re.compile(
    r"No module named pytest|no tests ran|command not found|: not found", re.IGNORECASE
)
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


def cannot_run(output: str) -> bool:
    """Whether the check itself is missing, so that its failure says nothing about the code."""
    return _NO_CHECK.search(output) is not None


def find_check_command(user_text: str) -> str:
    """The command that must pass: the first in backticks of a request for a repair."""
    if _REPAIR_REQUEST.search(user_text) is None:
        return ""
    for command in _COMMAND.findall(user_text):
        if " " in command and not command.startswith("-"):
            return str(command)
    return ""


def extract_failure(output: str) -> str:
    """The few lines of a check's output that describe the first failure."""
    lines = output.strip().splitlines()
    excerpt: list[str] = []
    for index, line in enumerate(lines):
        if failed := _FAILED_TEST.match(line):
            excerpt.append(failed[0])
        elif _FRAME.match(line) or _PYTEST_FRAME.match(line):
            excerpt += [one.strip() for one in lines[index + 1 : index + 2]]
        elif error := _PYTEST_ERROR.match(line):
            excerpt.append(error[1])
            break  # the lines after it lead a small model astray
        elif _RAISED.match(line):
            excerpt.append(line)
            break
    if not excerpt:
        excerpt = [line for line in lines if has_failure(line)] or lines[-EXCERPT_LINES:]
    return "\n".join(line[:160] for line in excerpt[-EXCERPT_LINES:])


def find_file_names(*texts: str) -> list[str]:
    """The source files that these texts name, each once, without those of installed packages."""
    names = dict.fromkeys(match[0] for text in texts for match in _FILE.finditer(text))
    return [name for name in names if "/lib/python" not in name and "site-packages" not in name]


def find_imported_files(path: str, source: str) -> list[str]:
    """The files in the same folder that a Python source imports; else the files it names."""
    folder = path.rpartition("/")[0]
    if not path.endswith(".py"):
        names = [name for name in find_file_names(source) if "/" not in name]
    else:
        modules = [from_name or name for from_name, name in _IMPORT.findall(source)]
        own = [name for name in modules if name.split(".")[0] not in sys.stdlib_module_names]
        names = [name.strip(".").replace(".", "/") + ".py" for name in own if name.strip(".")]
    return [f"{folder}/{name}" if folder else name for name in dict.fromkeys(names)]


def find_command_files(command: str) -> list[str]:
    """The files that a check command names, also in the form `python -m unittest test_x`."""
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
    """The content of a file, from a tool that adds line numbers and a remark at the end."""
    lines = text.splitlines()
    numbered = [_NUMBERED.match(line) for line in lines]
    if lines and numbered[0] is not None:
        last = max(index for index, match in enumerate(numbered) if match is not None)
        if all(match is not None for match in numbered[: last + 1]):
            lines = [match[1] for match in numbered[: last + 1] if match is not None]
    return "\n".join(lines) + ("\n" if lines else "")
