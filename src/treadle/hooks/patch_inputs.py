"""The input of a hook command for each file of a patch, as if the file was edited or written.

Scripts that guard files read `file_path`, and a patch has several. The paths are those that the
tool declares in `access`; the patch itself is only searched for the texts. Used by command_hook.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.contracts.hook import (
    AddContext,
    Block,
    Change,
    HookAnswer,
    HookInput,
    Permit,
)
from treadle.core.contracts.tool import NO_ACCESS

PATCH_TOOL = "apply_patch"
_HEADER = re.compile(r"\*\*\* (?P<kind>Add|Update|Delete) File: (?P<path>.+)")
_MOVE = re.compile(r"\*\*\* Move to: (?P<path>.+)")


def split_patch(hook_input: HookInput) -> list[HookInput]:
    """One input for each file that a patch changes; of another call the input itself."""
    data = hook_input.data
    access = data.get("access", NO_ACCESS)
    paths = list(dict.fromkeys(file.path for file in access.files if file.mode == "write"))
    if data.get("tool_name") != PATCH_TOOL or not paths:
        return [hook_input]
    changes = _read_changes(str(data.get("tool_input", {}).get("patch", "")))
    return [_make_file_input(hook_input, path, changes.get(path, {})) for path in paths]


def _make_file_input(hook_input: HookInput, path: str, texts: dict[str, str]) -> HookInput:
    name = "write" if "content" in texts else "edit"
    change = {"file_path": path, **(texts or {"old_string": "", "new_string": ""})}
    data = {**hook_input.data, "tool_name": name, "tool_input": change}
    return msgspec.structs.replace(hook_input, data=data)


def _read_changes(patch: str) -> dict[str, dict[str, str]]:
    """The texts of each file: the `content` of a new one, the old and new lines of another."""
    changes: dict[str, dict[str, str]] = {}
    current = {"old_string": "", "new_string": ""}  # what precedes the first file
    for line in patch.split("\n"):
        line = line.removesuffix("\r")
        if header := _HEADER.fullmatch(line):
            keys = ("content",) if header["kind"] == "Add" else ("old_string", "new_string")
            current = changes.setdefault(header["path"].strip(), dict.fromkeys(keys, ""))
        elif moved := _MOVE.fullmatch(line):
            changes[moved["path"].strip()] = current
        else:
            _add_line(current, line[:1], f"{line[1:]}\n")
    return changes


def _add_line(texts: dict[str, str], mark: str, line: str) -> None:
    added = "content" if "content" in texts else "new_string"
    if mark in ("+", " "):
        texts[added] += line
    if mark in ("-", " ") and "old_string" in texts:
        texts["old_string"] += line


def refuse_change(part: HookInput, answer: HookAnswer | None) -> HookAnswer | None:
    """The answer about one file, which cannot be changed without the rest of the patch."""
    if not isinstance(answer, Change) or answer.arguments is None:
        return answer
    if answer.arguments == part.data["tool_input"]:
        return None
    path = part.data["tool_input"]["file_path"]
    return Block(f"a hook wants other text for {path}: change this file with `write`")


def join_answers(answers: Sequence[HookAnswer | None]) -> HookAnswer | None:
    """One answer for the call: it is blocked if one file is, and permitted only if all are."""
    given: list[Any] = [answer for answer in answers if answer is not None]
    for kind in (Block, Change):
        if found := [answer for answer in given if isinstance(answer, kind)]:
            return found[-1]
    contexts = dict.fromkeys(answer.text for answer in given if isinstance(answer, AddContext))
    if contexts:
        return AddContext("\n".join(contexts))
    is_permitted = len(given) == len(answers) and all(isinstance(one, Permit) for one in given)
    return given[0] if given and is_permitted else None
