"""Names of a package that load at first use, so that importing the package costs nothing.

    __getattr__, __dir__ = lazy_exports(__name__, {"Agent": "agents.agent"})

Imports only `sys`: this module loads before __main__ takes the current folder off the search path.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_exports(
    package: str,
    modules: "Mapping[str, str]",
    find_elsewhere: "Callable[[str], str] | None" = None,
) -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """`__getattr__` and `__dir__` of a package: `modules` says which of its modules has a name, or
    which one elsewhere (`treadle.core.errors`). `find_elsewhere` says what to use for the name of a
    class that the package does not have, or ""."""

    def get_attribute(name: str) -> object:
        module = modules.get(name)
        if module is None:
            find = find_elsewhere if name[:1].isupper() else None
            if find is not None and (elsewhere := find(name)):
                # `from ... import` does not show the text of an AttributeError.
                raise ImportError(f"{package} has no {name}; here it is {elsewhere}", name=package)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        path = module if module.startswith("treadle.") else f"{package}.{module}"
        value = getattr(import_module(path), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get_attribute, list_names
