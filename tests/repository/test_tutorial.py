"""The programs of docs/tutorial.md, as a reader runs them: each is a file, started twice."""

from __future__ import annotations

import os
import re
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest

from tests.preloaded import start_preloaded

PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text()
STEP = re.compile(
    r"^## (\d)\..*?`(step\d\.py)`:\n\n```python\n(.*?)```.*?```text\n(.*?)```",
    re.DOTALL | re.MULTILINE,
)
STEPS = STEP.findall(PAGE)
TYPED = {"step7.py": ["Say hi to Ada", "yes", ""]}
AT_THE_SECOND_START = {"step6.py": ("items: 4", "items: 8")}


def save(name: str, code: str) -> None:
    Path(name).write_text(code)


async def run_file(name: str) -> str:
    """What the program prints. `runpy` runs a file as `python FILE` does."""
    typed = TYPED.get(name, [])
    process = await start_preloaded(
        "import treadle.models, runpy",
        f"import runpy; runpy.run_path({name!r}, run_name='__main__')",
        stdin=PIPE if typed else DEVNULL,
        env=dict(os.environ),
    )
    out, err = await process.communicate("".join(f"{line}\n" for line in typed).encode() or None)
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode().rstrip()


def remove_typed(shown: str, lines: list[str]) -> str:
    """What a terminal shows, without what the user types."""
    for line in filter(None, lines):
        shown = shown.replace(f"{line}\n", "", 1)
    return shown.rstrip()


def test_every_step_is_one_program_with_its_output():
    assert [(number, name) for number, name, _, _ in STEPS] == [
        (str(n), f"step{n}.py") for n in range(1, 8)
    ]
    assert PAGE.count("```python") == len(STEPS)


@pytest.mark.parametrize(
    ("name", "code", "shown"), [step[1:] for step in STEPS], ids=[step[1] for step in STEPS]
)
async def test_a_step_prints_what_the_page_shows_also_at_the_second_start(
    name: str, code: str, shown: str
):
    save(name, code)
    expected = remove_typed(shown, TYPED.get(name, []))
    assert await run_file(name) == expected
    assert await run_file(name) == expected.replace(*AT_THE_SECOND_START.get(name, ("", "")))
