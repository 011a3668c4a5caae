"""The pages of the API: one for each public module, from docstrings and signatures.

The public names are those of tests/repository/public_api.txt. A name that two modules have is
described once: on the page of the narrower module, `treadle` links to it.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

from scripts.docs_site.repository_links import ROOT
from scripts.reference_pages.markdown import make_page

FOLDER = "api"
NAMES = ROOT / "tests/repository/public_api.txt"
WIDTH = 88
# What a reader looks for first; the other names follow in the order of the alphabet, the other
# methods in that of the source.
FIRST_NAMES = ("Agent", "Session", "Stream", "Result", "coding_agent")
FIRST_METHODS = ("run", "run_sync", "stream", "session", "start")
# What `str(signature)` adds to the source: quotes of annotations, modules, forms of repr().
NOISE = re.compile(
    r" at 0x[0-9a-f]+|~(?=[A-Z])"
    r"|\b(?:treadle|collections|pathlib|typing)(?:\.[a-z_]\w*)*\.(?=[A-Z])"
)
CLASS = re.compile(r"<class '(?:[\w]+\.)*(\w+)'>")
QUOTED_TYPE = re.compile(r"((?:: |-> ))'((?:[^'\\]|\\.)*)'|((?:: |-> ))\"([^\"]*)\"")


def write_pages() -> dict[str, str]:
    """Name of the page to its Markdown text."""
    modules = sorted({name.rpartition(".")[0] for name in NAMES.read_text().split()})
    homes = find_homes(modules)
    return {f"{FOLDER}/{name}.md": describe_module(name, homes) for name in modules}


def find_homes(modules: list[str]) -> dict[str, str]:
    """Public name to the module that describes it: the last one of those that have the object."""
    homes: dict[str, str] = {}
    for module in modules:
        homes.update(dict.fromkeys(importlib.import_module(module).__all__, module))
    return homes


def describe_module(name: str, homes: dict[str, str]) -> str:
    module = importlib.import_module(name)
    own = [one for one in module.__all__ if homes[one] == name]
    others = [one for one in module.__all__ if homes[one] != name]
    parts = [clean_text(module.__doc__ or "")]
    if others:
        parts.append(
            "Also here: "
            + ", ".join(f"[`{one}`]({homes[one]}.md#{one.lower()})" for one in others)
            + "."
        )
    parts += [part for one in sort_first(own, FIRST_NAMES) for part in describe(one, module)]
    return make_page(name, *parts)


def sort_first(names: Iterable[str], first: Sequence[str]) -> list[str]:
    """The names of `first` in their order, then the others sorted."""
    known = set(names)
    return [*(one for one in first if one in known), *sorted(known - set(first))]


def describe(name: str, module: ModuleType) -> Iterator[str]:
    """The heading, signature and text of a name, then those of its public methods."""
    value = getattr(module, name)
    yield f"## {name}"
    is_alias = hasattr(value, "__origin__")
    if is_alias or not callable(value) or not hasattr(value, "__name__"):
        yield block(f"{name} = {plain(repr(value))}" if name != "__version__" else name)
        return
    yield block(write_signature(name, value))
    if text := read_docstring(value):
        yield text
    if isinstance(value, type):
        for method_name, method in list_methods(value):
            yield f"### {name}.{method_name}"
            yield block(write_signature(method_name, method))
            if text := read_docstring(method):
                yield text


def list_methods(kind: type) -> list[tuple[str, Any]]:
    """The public methods that programs use, those of FIRST_METHODS first."""
    methods = dict(public_methods(kind))
    first = [name for name in FIRST_METHODS if name in methods]
    return [(name, methods[name]) for name in dict.fromkeys([*first, *methods])]


def read_docstring(value: Any) -> str:
    own = value.__dict__.get("__doc__") if isinstance(value, type) else value.__doc__
    # A dataclass without a text has its signature as docstring.
    if not own or own.startswith(f"{getattr(value, '__name__', '')}("):
        return ""
    return clean_text(inspect.cleandoc(own))


def clean_text(text: str) -> str:
    """A docstring as Markdown: what looks like HTML is text."""
    parts = re.split(r"(`[^`]*`|^ {4}.*$)", text, flags=re.MULTILINE)
    return "".join(part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(parts))


def public_methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties with a docstring, of the class and its bases in this package."""
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("treadle"):
            continue
        for name, value in vars(base).items():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if name.startswith("_") or name in seen or not inspect.isfunction(function):
                continue
            seen.add(name)
            if function.__doc__:
                yield name, value if isinstance(value, property) else function


def write_signature(name: str, value: Any) -> str:
    if isinstance(value, property):
        getter: Any = value.fget
        return plain(f"property {name}: {inspect.signature(getter).return_annotation!r}")
    keyword = "class " if isinstance(value, type) else ""
    if inspect.iscoroutinefunction(value):
        keyword = "async "
    try:
        signature = inspect.signature(value)
    except (ValueError, TypeError):
        return f"{keyword}{name}"
    parameters = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    signature = signature.replace(parameters=parameters)
    if isinstance(value, type):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    line = f"{keyword}{name}{plain(str(signature))}"
    if len(line) <= WIDTH or not parameters:
        return line
    # Every parameter on a line of its own; `*` and `/` stay where they are.
    inside = ",\n    ".join(map(wrap_parameter, split_parameters(signature)))
    returns = line.rpartition(") -> ")[2] if ") -> " in line else ""
    return f"{keyword}{name}(\n    {inside},\n){f' -> {returns}' if returns else ''}"


def plain(text: str) -> str:
    """A part of a signature as it is written in the source."""
    text = QUOTED_TYPE.sub(lambda found: "".join(part or "" for part in found.groups()), text)
    return (
        NOISE.sub("", CLASS.sub(r"\1", text))
        .replace("<factory>", "...")
        .replace("NoneType", "None")
    )


def split_parameters(signature: inspect.Signature) -> Iterator[str]:
    kind = inspect.Parameter
    starred = False
    for one in signature.parameters.values():
        starred = starred or one.kind is kind.VAR_POSITIONAL
        if one.kind is kind.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        yield plain(str(one))


def wrap_parameter(text: str) -> str:
    """A long type goes on below itself."""
    return textwrap.fill(
        text, WIDTH - 4, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False
    )


def block(code: str) -> str:
    return f"```python\n{code}\n```"
