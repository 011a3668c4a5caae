"""A call of Treadle's tools, as the model of another program makes it with the tools it is offered.

A program without such a tool gets a shell command that does the same. Codex offers its newer models
one tool that runs JavaScript, and the others inside of it. Used by first_requests.py and
session_cost.py.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from treadle.testing.provider import FakeCall

SHELLS = {"Bash": "command", "bash": "command", "exec_command": "cmd", "shell_command": "command"}


def list_tools(body: dict[str, Any]) -> set[str]:
    """The names of the tools that a request offers, in any of the formats."""
    names: set[str] = set()

    def add(tools: list[dict[str, Any]]) -> None:
        for tool in tools:
            names.add(str(tool.get("name") or tool.get("function", {}).get("name")))
            add(tool.get("tools") or [])

    add(body.get("tools") or [])
    for item in body.get("input") or []:
        if item.get("type") == "additional_tools":
            add(item["tools"])
    return names


def translate(call: FakeCall, offered: set[str], project: Path) -> FakeCall:
    arguments = json.loads(call.raw)
    if "file_path" in arguments:
        arguments["file_path"] = str(project / arguments["file_path"])
    is_script = "exec" in offered
    name = next((one for one in (call.name, call.name.title()) if one in offered), "")
    match call.name:
        case "task":
            return _make_task(arguments, offered)
        case "todo" if "TodoWrite" in offered:
            todos = [{**one, "activeForm": one["content"]} for one in arguments["todos"]]
            return FakeCall("TodoWrite", {"todos": todos})
        case "todo" if "update_plan" in offered:
            plan = [{"step": t["content"], "status": t["status"]} for t in arguments["todos"]]
            return FakeCall("update_plan", {"plan": plan})
        case _ if name and call.name != "bash":
            return FakeCall(name, arguments)
        case "edit" | "write" if is_script:
            patch = json.dumps(_make_patch(call.name, arguments, project))
            return _run_script(f"text(await tools.apply_patch({patch}))")
        case "read" if is_script and arguments["file_path"].endswith(".png"):
            path = json.dumps({"path": arguments["file_path"]})
            return _run_script(f"image(await tools.view_image({path}))")
    command = _make_command(call.name, arguments, project)
    if is_script:
        return _run_script(f"text(await tools.exec_command({json.dumps({'cmd': command})}))")
    shell = next(one for one in SHELLS if one in offered)
    words = {"description": "run it"} if shell == "Bash" else {}
    return FakeCall(shell, {SHELLS[shell]: command, **words})


def _run_script(text: str) -> FakeCall:
    return FakeCall("exec", text, is_free_text=True)


def _make_task(arguments: dict[str, Any], offered: set[str]) -> FakeCall:
    if "spawn_agent" in offered:
        given = {"task_name": "look", "message": arguments["prompt"], "fork_turns": "none"}
        return FakeCall("spawn_agent", given)
    return FakeCall("Agent", {**arguments, "subagent_type": "Explore"})


def _make_command(name: str, arguments: dict[str, Any], project: Path) -> str:
    path = shlex.quote(arguments.get("file_path", ""))
    match name:
        case "bash":
            return str(arguments["command"])
        case "read":
            first = arguments.get("offset", 1)
            part = (
                f" | sed -n {first},{first + arguments['limit'] - 1}p"
                if "limit" in arguments
                else ""
            )
            return f"nl -ba {path}{part}"
        case "edit" | "write":
            patch = _make_patch(name, arguments, project)
            return f"apply_patch <<'EOF'\n{patch}\nEOF"
        case "grep":
            return f"grep -rn {shlex.quote(arguments['pattern'])} --include=*.py ."
        case "glob":
            return f"find . -name {shlex.quote(Path(arguments['pattern']).name)}"
    return "true"


def _make_patch(name: str, arguments: dict[str, Any], project: Path) -> str:
    """Of whole lines, which `apply_patch` compares."""
    path = Path(arguments["file_path"])
    shown = path.relative_to(project)
    if name == "write":
        lines = [f"+{line}" for line in arguments["content"].splitlines()]
        return "\n".join(["*** Begin Patch", f"*** Add File: {shown}", *lines, "*** End Patch"])
    text, old = path.read_text(), arguments["old_string"]
    at = text.index(old)
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at + len(old.rstrip("\n")))
    before = text[start:end]
    after = before.replace(old.rstrip("\n"), arguments["new_string"].rstrip("\n"))
    lines = [f"-{line}" for line in before.split("\n")] + [f"+{line}" for line in after.split("\n")]
    head = ["*** Begin Patch", f"*** Update File: {shown}", "@@"]
    return "\n".join([*head, *lines, "*** End Patch"])
