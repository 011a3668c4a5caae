"""Shared by the tests of broken implementations."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager

import pytest

from treadle.testing.conformance.promises import Promise, to_sentence


def assert_names_the_promise(
    contract: str, promise: Promise
) -> AbstractContextManager[pytest.ExceptionInfo[AssertionError]]:
    return pytest.raises(
        AssertionError, match=f"^{re.escape(f'{contract}: {to_sentence(promise)}')}"
    )


def assert_all_are_broken(broken: Mapping[Promise, object], promises: Collection[Promise]) -> None:
    """Each promise of a suite has an implementation that breaks it."""
    missing = [to_sentence(promise) for promise in promises if promise not in broken]
    assert missing == []
    assert len(broken) == len(promises)
