"""docs/errors.md names every error of the library, and `treadle.errors` has it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import treadle
from treadle import errors
from treadle.core import errors as core_errors
from treadle.core.errors import TreadleError

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
# The loop turns these into a warning, a denial or the result of a call.
CONTAINED = {"HookFailed", "LanguageServerError", "RefusedRequest"}


def list_errors(module: object) -> set[str]:
    kinds = [kind for kind in vars(module).values() if inspect.isclass(kind)]
    return {kind.__name__ for kind in kinds if issubclass(kind, BaseException)}


def test_every_error_can_be_imported_and_is_on_the_page():
    known = list_errors(core_errors)
    assert set(errors.__all__) == known
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert rows == known - {"TreadleError", "ModelError"}, "those two are the headings"


def test_the_library_has_no_error_of_its_own_elsewhere():
    for module in pkgutil.walk_packages(treadle.__path__, "treadle."):
        if not module.name.startswith(("treadle.apps", "treadle.__main__", "treadle.fleet")):
            importlib.import_module(module.name)
    kinds, found = [TreadleError], set[str]()
    while kinds:
        subclasses = kinds.pop().__subclasses__()
        kinds += subclasses
        own = [one for one in subclasses if one.__module__.startswith("treadle.")]
        found |= {one.__name__ for one in own if not one.__module__.startswith("treadle.apps")}
    assert found - CONTAINED == set(errors.__all__) - {"TreadleError"}
