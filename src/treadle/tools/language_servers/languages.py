"""Languages: their files, and the servers and checkers that may be installed for them.

Looks only at names of files; starts nothing. Used by servers.py, and by the assembly to decide
whether the tools are offered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

PROGRAM_FOLDERS = (".venv/bin", "venv/bin", "node_modules/.bin")  # of a project; then PATH
FILE = "{file}"


class Checker(msgspec.Struct, frozen=True):
    """A program that is run after an edit. With `{file}` it checks the text of one file, which it
    reads from stdin, else the whole project, which has the file `needs`."""

    argv: tuple[str, ...]
    needs: str = ""


class Language(msgspec.Struct, frozen=True):
    """`suffixes`: of its files, with the names that servers know. `markers`: a project with one of
    these files in its root uses the language. `servers`: command lines, the first one that is found
    and starts is used."""

    name: str
    suffixes: Mapping[str, str]
    markers: tuple[str, ...]
    servers: tuple[tuple[str, ...], ...]
    checker: Checker | None = None


LANGUAGES = (
    Language(
        "Python",
        {".py": "python", ".pyi": "python"},
        ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "pyrightconfig.json"),
        (("basedpyright-langserver", "--stdio"), ("pyright-langserver", "--stdio")),
        Checker(
            (
                "ruff",
                "check",
                "--quiet",
                "--output-format",
                "concise",
                "--stdin-filename",
                FILE,
                "-",
            )
        ),
    ),
    Language(
        "TypeScript",
        dict.fromkeys((".ts", ".mts", ".cts"), "typescript")
        | dict.fromkeys((".js", ".mjs", ".cjs"), "javascript")
        | {".tsx": "typescriptreact", ".jsx": "javascriptreact"},
        ("tsconfig.json", "jsconfig.json", "package.json"),
        # The compiler is a language server from version 7 on.
        (("typescript-language-server", "--stdio"), ("tsc", "--lsp", "--stdio")),
        Checker(("tsc", "--noEmit", "--pretty", "false"), "tsconfig.json"),
    ),
    Language(
        "Rust",
        {".rs": "rust"},
        ("Cargo.toml",),
        (("rust-analyzer",),),
        Checker(("cargo", "check", "--quiet", "--message-format", "short"), "Cargo.toml"),
    ),
    Language(
        "Go",
        {".go": "go"},
        ("go.mod", "go.work"),
        (("gopls",),),
        Checker(("go", "vet", "./..."), "go.mod"),
    ),
    Language(
        "C",
        dict.fromkeys((".c", ".h"), "c") | dict.fromkeys((".cc", ".cpp", ".cxx", ".hpp"), "cpp"),
        ("compile_commands.json", "compile_flags.txt", ".clangd", "CMakeLists.txt"),
        (("clangd", "--log=error"),),
    ),
)


def find_language(path: Path) -> Language | None:
    return next((one for one in LANGUAGES if path.suffix in one.suffixes), None)


def find_installed(argv: Sequence[str], root: Path) -> tuple[str, ...] | None:
    """The command line with the path of its program: the project's own, else the one in PATH."""
    folders = (str(root / one) for one in PROGRAM_FOLDERS)
    import shutil

    found = next(filter(None, (shutil.which(argv[0], path=one) for one in folders)), None)
    found = found or shutil.which(argv[0])
    return (found, *argv[1:]) if found is not None else None


def list_servers(language: Language, root: Path) -> list[tuple[str, ...]]:
    return [found for argv in language.servers if (found := find_installed(argv, root))]


def iter_project_languages(root: Path) -> Iterator[Language]:
    """The languages of a project for which a server is installed."""
    for language in LANGUAGES:
        is_used = any((root / name).exists() for name in language.markers)
        if is_used and list_servers(language, root):
            yield language
