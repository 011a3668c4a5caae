"""Regular expressions that are compiled at their first use.

A short run uses few of the patterns that its modules define, and to compile a long one costs up to
two milliseconds. For the costly ones that most runs never need: `re.compile` is right elsewhere.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, Generic, cast


class _LazyPattern(Generic[AnyStr]):
    def __init__(self, source: AnyStr, flags: re.RegexFlag) -> None:
        self._source: AnyStr = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, value)
        return value


def compile_lazily(source: AnyStr, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[AnyStr]:
    """A pattern for its methods (`PATTERN.search(text)`), not for `re.search(PATTERN, text)`."""
    return cast(re.Pattern[AnyStr], _LazyPattern(source, flags))
