"""`treadle.errors` has every error of the library; what else it raises, it catches itself."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import treadle
from treadle import errors
from treadle.core.errors import TreadleError

# The loop turns these into a warning, a denial or the result of a call; a fleet, into a wait.
CONTAINED = {
    *("HookFailed", "LanguageServerError", "RefusedRequest"),
    *("FleetMoneySpent", "TurnSuspended"),
}
# What a program imports (treadle.evals, treadle.fleet, coding_agent, …), without the hosts.
HOSTS = ("cli", "tui", "web", "acp", "console", "conversation", "pages", "settings")
NOT_OF_PROGRAMS = ("treadle.__main__", *(f"treadle.apps.{host}" for host in HOSTS))
SOURCE = Path(treadle.__file__).parent


def list_own_errors() -> set[type[BaseException]]:
    """Every exception of the package that the import of what programs use makes."""
    for module in pkgutil.walk_packages(treadle.__path__, "treadle."):
        if not module.name.startswith((*NOT_OF_PROGRAMS, "treadle.apps.fleet.engines")):
            importlib.import_module(module.name)
    kinds, found = [BaseException], set[type[BaseException]]()
    while kinds:
        kinds += kinds.pop().__subclasses__()
        found |= {one for one in kinds if one.__module__.startswith("treadle.")}
    return {one for one in found if not one.__module__.startswith(NOT_OF_PROGRAMS)}


def test_the_library_has_no_error_of_its_own_elsewhere():
    found = {one.__name__ for one in list_own_errors() if issubclass(one, TreadleError)}
    assert found - CONTAINED == set(errors.__all__)


def list_caught() -> set[str]:
    """The names in the `except` clauses and `suppress` of the package."""
    caught = set[str]()
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            kinds = [node.type] if isinstance(node, ast.ExceptHandler) and node.type else []
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
                kinds = node.args
            caught |= {
                ast.unparse(name).split(".")[-1]
                for kind in kinds
                for name in ast.walk(kind)
                if isinstance(name, (ast.Name, ast.Attribute))
            }
    return caught


def test_an_exception_that_is_no_treadle_error_is_caught_by_the_package_itself():
    caught = list_caught()
    escaping = {
        one.__name__
        for one in list_own_errors()
        if not issubclass(one, TreadleError) and one.__module__.split(".")[1] != "testing"
        if not any(
            base.__name__ in caught for base in one.__mro__ if base.__module__ == one.__module__
        )
    }
    assert escaping == set()
