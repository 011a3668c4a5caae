"""A tool source of your own: each text file of a folder is a tool that returns its text."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from treadle import Agent, ToolContext, ToolError, ToolOutput
from treadle.contracts import Arguments, BaseSource, BaseTool, Tool, ToolSpec
from treadle.models import Say, Scripted


class ReadPage(BaseTool):
    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def spec(self) -> ToolSpec:
        text = f"Read the page about {self._path.stem}."
        return ToolSpec(f"page_{self._path.stem}", text, {"type": "object"}, effect="pure")

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        try:
            return ToolOutput(await asyncio.to_thread(self._path.read_text))
        except OSError as error:
            raise ToolError(f"{self._path.name} cannot be read: {error.strerror}") from error


class Pages(BaseSource):
    name = "pages"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tools: Sequence[Tool] = ()

    async def open(self) -> None:
        paths = await asyncio.to_thread(lambda: sorted(self._folder.glob("*.txt")))
        self._tools = tuple([ReadPage(path) for path in paths])

    def tools(self) -> Sequence[Tool]:
        return self._tools  # the same object until `open` finds other files

    def instructions(self) -> str:
        return "The pages hold what is known about the company."


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "holidays.txt").write_text("We close on May 1st.")
        model = Scripted([Say(calls=[("page_holidays", {})]), "On May 1st."])
        print((await Agent(model, [Pages(Path(folder))]).run("When do we close?")).text)


if __name__ == "__main__":
    asyncio.run(main())
