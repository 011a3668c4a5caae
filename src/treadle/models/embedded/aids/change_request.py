"""What a request wants done: a change of files, a repair, and the check that the project has.

Pure functions of texts. Used by tool_choice.py and repair.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from treadle.models.embedded.aids.argument_values import find_request_files
from treadle.models.embedded.aids.check_output import is_test_file

_CHANGE = (
    r"(?:fix|repair|debug|correct|implement|refactor|rewrite|write|create|add|build|rename|improve|"
    r"change|make|remove|delete|drop|replace|update|set|insert|append|convert|move)"
)
_CODE_NOUN = (
    r"(?:code|functions?|class(?:es)?|tests?|bugs?|scripts?|programs?|methods?|modules?|features?|"
    r"apps?|errors?|servers?|parsers?|files?|imports?|variables?|typos?)"
)
_CODE_REQUEST = re.compile(rf"\b{_CHANGE}\b[^.?!]*\b{_CODE_NOUN}\b", re.IGNORECASE)
_ORDER = re.compile(rf"(?:^|[.!?:,;]\s+|\bplease\s+|\band\s+|\bthen\s+){_CHANGE}\b", re.IGNORECASE)
_QUESTION = re.compile(
    r"^\s*(?:how|what|which|why|where|who|when|is|are|does|do|should|explain|describe)\b",
    re.IGNORECASE,
)
_REPAIR = re.compile(
    r"\b(?:fix|repair|(?-i:[Dd]ebug)|correct|solve)\b|\bmake\b[^.?!]*\b(?:pass|work|green)\b",
    re.IGNORECASE,
)
_SEVERAL = re.compile(r"\b(?:and|then|also|all|every|each|both|files)\b", re.IGNORECASE)
_NAME = re.compile(r"[\w.-]+")
_WORD = re.compile(r"[a-z0-9]+")
MAX_RELATED_FILES = 3

_PYTEST = "python3 -B -m pytest -q --tb=short -p no:cacheprovider"
_CHECKS_BY_FILE = {
    "Cargo.toml": "cargo test --quiet",
    "go.mod": "go test ./...",
    "package.json": "npm test --silent",
}


def asks_for_change(user_text: str) -> bool:
    """Whether files have to change, so that an answer alone does nothing."""
    if _QUESTION.match(user_text):
        return False
    if asks_for_repair(user_text) or _CODE_REQUEST.search(user_text):
        return True
    return bool(find_request_files(user_text)) and _ORDER.search(user_text) is not None


def asks_for_several(user_text: str) -> bool:
    """Whether one change may not be all."""
    return len(find_request_files(user_text)) > 1 or _SEVERAL.search(user_text) is not None


def asks_for_repair(user_text: str) -> bool:
    return not _QUESTION.match(user_text) and _REPAIR.search(user_text) is not None


def find_names(listing: str) -> list[str]:
    """The names in a listing of a folder."""
    lines = [line.strip().rstrip("/") for line in listing.splitlines()]
    return [line for line in lines if _NAME.fullmatch(line) and not line.startswith(".")]


def find_related_files(user_text: str, names: Sequence[str]) -> list[str]:
    """The files that a request names, and those of the folder whose stem is a word of it."""
    words = set(_WORD.findall(user_text.lower()))
    named = [name for name in find_request_files(user_text) if name in names or "/" in name]
    alike = [
        name
        for name in names
        if "." in name and words.issuperset(_WORD.findall(name.lower().rpartition(".")[0]))
    ]
    return list(dict.fromkeys((*named, *alike)))[:MAX_RELATED_FILES]


def find_project_check(user_text: str, names: Sequence[str]) -> str:
    """The command that runs the tests of a folder with these names; "" if none is known."""
    tests = [name for name in names if name.endswith(".py") and is_test_file(name)]
    if tests:
        return " ".join([_PYTEST, *(name for name in tests if name in user_text)])
    for name, command in _CHECKS_BY_FILE.items():
        if name in names:
            return command
    has_python = any(name.endswith((".py", ".toml", ".cfg")) for name in names)
    return _PYTEST if has_python and "tests" in names else ""
