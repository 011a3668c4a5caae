"""What code mode saves, measured by the benchmark of the page."""

from __future__ import annotations

from pathlib import Path

from benchmarks import code_mode
from treadle.models import Say


async def test_forty_reads_and_greps_need_a_tenth_of_the_tokens(tmp_path: Path):
    names = code_mode.make_project(tmp_path)
    replies: list[Say | str] = [Say(calls=[("run_code", {"code": code_mode.CODE})]), "done"]
    program = await code_mode.measure(tmp_path, replies, code_mode=True)
    single = await code_mode.measure(tmp_path, code_mode.script_single(names), code_mode=False)
    assert program.answer.split() == [name for n, name in enumerate(names) if n % 4 == 3]
    assert program.sent < single.sent / 10
