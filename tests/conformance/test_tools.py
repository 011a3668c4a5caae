from __future__ import annotations

from pathlib import Path

from treadle.contracts import Tool, ToolError
from treadle.testing import RecordingTool, check_tool, make_tool_context
from treadle.tools import builtin_tools, tool
from treadle.workspace import LocalWorkspace, WorkspaceOptions


@tool(effect="pure")
async def divide(a: int, b: int) -> float:
    """Divide a by b."""
    if b == 0:
        raise ToolError("b is 0; give another number")
    return a / b


@tool
def shout(text: str) -> str:
    """Make it loud."""
    return text.upper()


async def test_function_tools_keep_the_promises_of_a_tool():
    await check_tool(lambda: divide, {"a": 1, "b": 2}, failing={"a": 1, "b": 0})
    await check_tool(lambda: shout, {"text": "a"})


async def test_the_recording_tool_keeps_the_promises_of_a_tool():
    await check_tool(RecordingTool)


async def test_the_builtin_file_tools_keep_the_promises_of_a_tool(own_place: Path):
    folder = own_place / "cwd"
    workspace = await LocalWorkspace.open(folder, WorkspaceOptions(sandbox="off"))
    context = make_tool_context(workspace=workspace)

    def make(name: str) -> Tool:
        (folder / "new.txt").unlink(missing_ok=True)
        (folder / "old.txt").write_text("one\ntwo\n")
        return next(t for t in builtin_tools(workspace).tools() if t.spec.name == name)

    missing = {"file_path": "no/such.txt"}
    old, new = {"file_path": "old.txt"}, {"file_path": "new.txt", "content": "x"}
    edit = {**old, "old_string": "one", "new_string": "1"}
    try:
        await check_tool(lambda: make("read"), old, failing=missing, context=context)
        await check_tool(lambda: make("write"), new, context=context)
        await check_tool(lambda: make("edit"), edit, context=context)
        await check_tool(lambda: make("ls"), {"path": "."}, failing={"path": "no"}, context=context)
        await check_tool(lambda: make("bash"), {"command": "true"}, context=context)
    finally:
        await workspace.aclose()
