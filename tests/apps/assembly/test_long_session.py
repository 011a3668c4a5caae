"""A long piece of work in ten processes sends little outside of the provider's cache.

benchmarks/long_session.py prints the same as a table.
"""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from benchmarks import long_session


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_44_rounds_with_children_plans_servers_and_summaries_keep_the_cache(own_place: Path):
    with mock.patch.dict(os.environ):
        measured = long_session.measure(await long_session.run_benchmark(own_place))
    figures = long_session.add_up(measured)
    assert {one.purpose for one in measured} == {"turn", "child", "summary"}
    assert long_session.is_good(figures), long_session.format_figures(figures, measured)
