"""Checks of names and texts that ruff does not have: a stage of ./check.

    find_shared_names     two public classes or type aliases of src/treadle with one name
    find_gerund_modules   modules and packages that are named by a gerund
    find_idioms           idioms in program texts, docstrings and documents
    find_stale_modules    modules that a module docstring or docs/architecture.md names and that
                          do not exist

The rules themselves are in CONTRIBUTING.md. Each function takes sources and returns one line for
each violation; tests/repository/test_names.py plants violations. Exceptions are in the tables
below, each with its reason.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "src/treadle"
DOCUMENTS = ("*.md", "docs/**/*.md", "examples/**/*.py", f"{PACKAGE}/**/*.md")

# Name: why several classes or aliases may have it.
SHARED_NAMES: Mapping[str, str] = {}

# Module or package: why its name may be a gerund.
GERUND_MODULES: Mapping[str, str] = {
    "coding": "a coding agent is what the field calls it",
    "encoding": "the usual word for how values become bytes",
    "decoding": "its opposite",
    "pending": "an adjective: the module holds `pending()`",
    "ruling": "a noun: the module holds the ruling of the policy on a call",
    "testing": "the usual name of a package with fakes and helpers for tests",
}

# Pattern: what to write instead. Patterns ignore case.
IDIOMS: Mapping[str, str] = {
    r"\bwalls\b": "sandbox",
    r"\b(go|goes|going|gone|went) on with\b": "continue, resume, use",
    r"\b(some|no|any|every)body's\b": "the user's, the host's, ...",
    r"\bwho(so)?ever\b": "name the role: the user, the caller, the host",
    r"\b(is|are|was|were) nowhere\b": "not found",
    r"\bfor want of\b": "without, needs",
    r"\b(lead|leads|leading|led) out\b": "a symlink that leaves the folder",
    r"\bthe house\b": "the project, the code",
    r"\b(get|gets|give|gives|has|have) the word\b": "name the event",
    r"\b(some|no)body\b": "name the role: the user, the caller, the host",
}

# File and text: why the text may stay.
KEPT_TEXTS: Mapping[tuple[str, str], str] = {
    (
        f"{PACKAGE}/apps/console/permission_history.py",
        "This needs a person's approval, and nobody can be asked in this run",
    ): "version 0.1 wrote it into logs, which are still read",
}

ARCHITECTURE = "docs/architecture.md"
MODULE_NAME = re.compile(r"[\w./-]*\w\.py\b")

# Module, and a file that its docstring names: why no such file exists.
FILES_OF_OTHERS: Mapping[tuple[str, str], str] = {
    (f"{PACKAGE}/apps/fleet/tasks/exercises.py", "bowling.py"): "of an exercise",
    (f"{PACKAGE}/apps/fleet/tasks/exercises.py", "bowling_test.py"): "of an exercise",
    (f"{PACKAGE}/tools/skills.py", "scripts/version.py"): "of a skill",
}

Sources = Mapping[str, str]  # path from the root of the repository to text


def find_shared_names(sources: Sources) -> list[str]:
    """One line for each public name that more than one module defines."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path, source in sources.items():
        for name, line in sorted(public_types(ast.parse(source)).items()):
            homes[name].append(f"{path}:{line}")
    return [
        f"{name} is defined more than once: {', '.join(places)}"
        for name, places in sorted(homes.items())
        if len(places) > 1 and name not in SHARED_NAMES
    ]


def public_types(module: ast.Module) -> dict[str, int]:
    """The public classes and type aliases of a module, with their lines."""
    found: dict[str, int] = {}
    for node in top_level(module.body):
        match node:
            case ast.ClassDef(name=name) if not name.startswith("_"):
                found.setdefault(name, node.lineno)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ) if is_type_name(name) and not isinstance(value, ast.Constant):
                found.setdefault(name, node.lineno)
            case _:
                pass
    return found


def top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, also inside `if` and `try`."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try)):
            yield from top_level([*node.body, *node.orelse])
        if isinstance(node, ast.Try):
            yield from top_level([part for handler in node.handlers for part in handler.body])


def is_type_name(name: str) -> bool:
    return name[0].isupper() and name.upper() != name


def find_gerund_modules(paths: Iterable[str]) -> list[str]:
    """One line for each module or package whose name is, or begins with, a gerund."""
    names = {part for path in paths for part in module_names(path)}
    return [
        f"{place}: a module is named by a noun, not by a gerund ({word})"
        for place, word in sorted(names)
        if re.fullmatch(r"\w+ing", word) and word not in GERUND_MODULES
    ]


def module_names(path: str) -> Iterator[tuple[str, str]]:
    """The module of a file and the packages above it, each with the first word of its name."""
    file = PurePosixPath(path)
    for place in (file, *file.parents):
        if place.stem:
            yield str(place), place.stem.strip("_").partition("_")[0]


def find_idioms(sources: Sources) -> list[str]:
    """One line for each idiom: in documents anywhere, in modules in their texts and docstrings."""
    return [
        f"{path}:{line + text.count(chr(10), 0, match.start())}: {match[0]!r}: say {advice}"
        for path, source in sorted(sources.items())
        for line, text in (texts_of(source) if path.endswith(".py") else [(1, source)])
        for pattern, advice in IDIOMS.items()
        for match in re.finditer(pattern.replace(" ", r"\s+"), text, re.IGNORECASE)
        if (path, text) not in KEPT_TEXTS
    ]


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """The string literals of a module, docstrings among them, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def find_stale_modules(sources: Sources, others: Collection[str] = ()) -> list[str]:
    """One line for each `x.py` that a document or a module docstring names, unless the path of a
    module ends so. `others` are named by their whole path."""
    modules = [f"/{path}" for path in sources if path.endswith(".py")]
    return [
        f"{path}: {name} does not exist"
        for path, source in sorted(sources.items())
        for name in MODULE_NAME.findall(introduction(path, source))
        if not any(module.endswith(f"/{name.removeprefix('../')}") for module in modules)
        and name not in others
        and (path, name) not in FILES_OF_OTHERS
    ]


def introduction(path: str, source: str) -> str:
    return (ast.get_docstring(ast.parse(source)) or "") if path.endswith(".py") else source


def read_sources(*patterns: str) -> dict[str, str]:
    files = {file for pattern in patterns for file in ROOT.glob(pattern) if file.is_file()}
    return {file.relative_to(ROOT).as_posix(): file.read_text() for file in sorted(files)}


def main() -> int:
    modules = read_sources(f"{PACKAGE}/**/*.py")
    inside = [path.removeprefix(f"{PACKAGE}/") for path in modules]
    problems = [
        *find_shared_names(modules),
        *find_gerund_modules(inside),
        *find_idioms({**modules, **read_sources(*DOCUMENTS)}),
        *find_stale_modules({**modules, **read_sources(ARCHITECTURE)}, read_sources("*/*.py")),
    ]
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems in names and texts" if problems else "names and texts: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
