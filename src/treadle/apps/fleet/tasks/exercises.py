"""Tasks of the polyglot form: exercises as Exercism has them, one folder each.

    python/exercises/practice/bowling/.docs/instructions.md      what to do
                                      .meta/config.json          which files are solution and test
                                      bowling.py, bowling_test.py

The check runs the tests of the exercise's language. Used by task_files.py; workspaces.py leaves out
`.meta`, which holds a solution.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from treadle.apps.fleet.task import FleetTask
from treadle.core.errors import ConfigError

INSTRUCTIONS = ".docs/instructions.md"
MORE_INSTRUCTIONS = (".docs/introduction.md", ".docs/instructions.append.md")
CONFIG = ".meta/config.json"
SOLUTION_FOLDER = ".meta"

# The command that runs the tests of a language; {tests} are the files of tests.
CHECKS: Mapping[str, str] = {
    "python": "python3 -m pytest -q {tests}",
    "go": "go test ./...",
    "rust": "cargo test -- --include-ignored",
    "javascript": "npm install --silent && npm test",
    "java": "./gradlew test",
    "cpp": "cmake -S . -B build -DEXERCISM_RUN_ALL_TESTS=1 && cmake --build build",
}
_LANGUAGES = {".py": "python", ".go": "go", ".rs": "rust", ".js": "javascript"}
_LANGUAGES |= {".java": "java", ".cpp": "cpp"}

_PROMPT = """\
{instructions}

Write the solution in {solution}. Do not change the tests ({tests}); they decide whether it is \
right. Do not rename what they use."""


def is_exercise(folder: Path) -> bool:
    return (folder / INSTRUCTIONS).is_file() and (folder / CONFIG).is_file()


def make_exercise_task(folder: Path) -> FleetTask:
    """The task of one exercise; its id is `language-name`."""
    solution, tests = _read_files(folder / CONFIG)
    language = _LANGUAGES.get(Path(solution[0]).suffix)
    if language is None:
        known = ", ".join(CHECKS)
        raise ConfigError(f"the language of {solution[0]} is not known; known ones: {known}")
    order = (MORE_INSTRUCTIONS[0], INSTRUCTIONS, MORE_INSTRUCTIONS[1])
    texts = [(folder / name).read_text("utf-8") for name in order if (folder / name).is_file()]
    return FleetTask(
        id=f"{language}-{folder.name}",
        prompt=_PROMPT.format(
            instructions="\n\n".join(text.strip() for text in texts),
            solution=", ".join(solution),
            tests=", ".join(tests),
        ),
        folder=str(folder.resolve()),
        check=CHECKS[language].format(tests=shlex.join(tests)),
        labels={"language": language},
    )


def _read_files(config: Path) -> tuple[list[str], list[str]]:
    try:
        files = json.loads(config.read_bytes())["files"]
        solution, tests = list(files["solution"]), list(files["test"])
    except (ValueError, KeyError, TypeError) as error:
        message = f"{config} needs files.solution and files.test, two lists of paths"
        raise ConfigError(message) from error
    if not solution or not all(isinstance(path, str) for path in (*solution, *tests)):
        raise ConfigError(f"{config} names no file for the solution")
    return solution, tests
