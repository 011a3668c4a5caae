"""The vim keys as a state machine: `press(state, key)` returns the next state.

    insert   the widget handles the keys; escape leads to normal
    normal   [count] motion · [count] operator [count] motion · a command such as x, p, u, o
    visual   motions move the end of the selection; d, c and y use it

Pure: the text, the cursor, the register and what can be undone are in the state. No key of the
terminal is known here but escape and ctrl+r; the widget (widgets/prompt.py) handles the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from treadle.apps.tui.vim.motions import (
    FINDS,
    MOTIONS,
    MotionInput,
    MotionKind,
    find_word,
    first_nonblank,
    line_end,
    line_start,
)

VimMode = Literal["insert", "normal", "visual"]
MAX_UNDO = 200
MAX_COUNT = 10_000
MAX_PASTED_CHARS = 1_000_000  # by one p or P with a count


class TextVersion(msgspec.Struct, frozen=True):
    text: str
    cursor: int


class VimState(msgspec.Struct, frozen=True):
    """`keys` are those of a command that is not complete yet. `anchor` is where the selection
    begins. `before` is the text at the beginning of the insert mode."""

    text: str = ""
    cursor: int = 0
    mode: VimMode = "insert"
    keys: str = ""
    register: str = ""
    has_lines: bool = False  # the register
    anchor: int = 0
    selects_lines: bool = False
    last_find: str = ""
    before: TextVersion = TextVersion("", 0)
    undo: tuple[TextVersion, ...] = ()
    redo: tuple[TextVersion, ...] = ()

    @property
    def selection(self) -> tuple[int, int]:
        """The selected range, in visual mode."""
        first, last = sorted((self.anchor, self.cursor))
        if self.selects_lines:
            return line_start(self.text, first), line_end(self.text, last)
        return first, min(last + 1, len(self.text))


class VimCommand(msgspec.Struct, frozen=True):
    """A complete command: `3d2w` is count 6, operator d, name w."""

    name: str
    operator: str = ""
    count: int = 1
    has_count: bool = False
    argument: str = ""


_COMMAND = re.compile(r"([1-9]\d*)?(?:([dcy])([1-9]\d*)?)?(.*)", re.DOTALL)
_UNFINISHED = frozenset({"", "g", "r", *FINDS})


def press(state: VimState, key: str) -> VimState | None:
    """The state after a key; None if the key is not for vim (the command so far is forgotten)."""
    if state.mode == "insert":
        return _leave_insert(state) if key == "escape" else None
    if key == "escape":
        is_used = bool(state.keys) or state.mode == "visual"
        return _change(state, mode="normal", keys="") if is_used else None
    if key == "ctrl+r":
        return _clamp(_step_back(state, forward=True))
    if len(key) != 1:
        return None
    command = parse_command(state.keys + key, in_visual=state.mode == "visual")
    if command is None:
        return _change(state, keys=state.keys + key)
    state = _change(state, keys="")
    run = _run_visual if state.mode == "visual" else _run_normal
    return _clamp(run(state, command))


def parse_command(keys: str, *, in_visual: bool = False) -> VimCommand | None:
    """The command; None if it is not complete. An unknown one has a name that does nothing."""
    match = _COMMAND.fullmatch(keys)
    assert match is not None, "every part is optional"
    first, operator, second, rest = match.groups()
    if in_visual and operator:
        return VimCommand(operator)
    if rest in _UNFINISHED or (operator and rest in ("i", "a")):
        return None
    count = min(int(first or 1) * int(second or 1), MAX_COUNT)
    argument = rest[1:] if rest[0] in f"r{FINDS}" else ""
    name = rest[0] if argument else rest
    return VimCommand(name, operator or "", count, bool(first or second), argument)


# ------------------------------------------------------------------ normal mode


def _run_normal(state: VimState, command: VimCommand) -> VimState:
    if command.operator:
        return _run_operator(state, command)
    if command.name in _COMMANDS:
        return _COMMANDS[command.name](state, command)
    return _move(state, command)


def _move(state: VimState, command: VimCommand) -> VimState:
    state, command = _resolve_find(state, command)
    motion = MOTIONS.get(command.name)
    target = motion.find(_motion_input(state, command)) if motion is not None else None
    return state if target is None else _change(state, cursor=target)


def _resolve_find(state: VimState, command: VimCommand) -> tuple[VimState, VimCommand]:
    """`;` and `,` repeat the last f, t, F or T, which is remembered."""
    if command.name in FINDS:
        return _change(state, last_find=command.name + command.argument), command
    if command.name not in (";", ",") or not state.last_find:
        return state, command
    name, argument = state.last_find[0], state.last_find[1]
    name = name if command.name == ";" else name.swapcase()
    return state, msgspec.structs.replace(command, name=name, argument=argument)


def _motion_input(state: VimState, command: VimCommand) -> MotionInput:
    return MotionInput(state.text, state.cursor, command.count, command.has_count, command.argument)


# ------------------------------------------------------------------ operators


def _run_operator(state: VimState, command: VimCommand) -> VimState:
    state, command = _resolve_find(state, command)
    found = _find_range(state, command)
    if found is None:
        return state
    first, last, kind = found
    return _apply_operator(state, command.operator, first, last, has_lines=kind == "lines")


def _find_range(state: VimState, command: VimCommand) -> tuple[int, int, MotionKind] | None:
    """The range that an operator changes."""
    text, cursor = state.text, state.cursor
    if command.name == command.operator:  # dd, cc, yy
        last = cursor
        for _ in range(command.count - 1):
            last = min(line_end(text, last) + 1, len(text))
        return line_start(text, cursor), line_end(text, last), "lines"
    if command.name in ("iw", "aw"):
        word = find_word(text, cursor, around=command.name == "aw")
        return None if word is None else (*word, "exclusive")
    name = command.name
    on_word = cursor < len(text) and not text[cursor].isspace()
    if command.operator == "c" and name in ("w", "W") and on_word:
        name = {"w": "e", "W": "E"}[name]  # cw keeps the blank after the word
    motion = MOTIONS.get(name)
    target = motion.find(_motion_input(state, command)) if motion is not None else None
    if motion is None or target is None:
        return None
    first, last = sorted((cursor, target))
    if motion.kind == "lines":
        return line_start(text, first), line_end(text, last), "lines"
    if name in ("w", "W") and "\n" in text[first:last]:
        last = max(text.rstrip("\n").rfind("\n", first, last), line_end(text, first))
    is_empty_line = motion.kind == "inclusive" and text[last : last + 1] == "\n"
    return first, last + (motion.kind == "inclusive" and not is_empty_line), motion.kind


def _apply_operator(
    state: VimState, operator: str, first: int, last: int, *, has_lines: bool
) -> VimState:
    text = state.text
    taken = _change(state, register=text[first:last], has_lines=has_lines, mode="normal")
    if operator == "y":
        cursor = state.cursor if has_lines and first <= state.cursor <= last else first
        return _change(taken, cursor=cursor)
    if operator == "c":
        return _insert(_replace(taken, first, last, "", first), state)
    if not has_lines:
        return _record(_replace(taken, first, last, "", first), state)
    if last < len(text):
        last += 1
    elif first > 0:
        first -= 1  # the last line: with the line break before it
    left = _replace(taken, first, last, "", first)
    cursor = first_nonblank(left.text, min(first, len(left.text)))
    if first < len(text) and text[first] == "\n" and last == len(text):
        cursor = first_nonblank(left.text, len(left.text))
    return _record(_change(left, cursor=cursor), state)


# ------------------------------------------------------------------ commands


def _insert_at(find: Callable[[VimState], int]) -> Callable[[VimState, VimCommand], VimState]:
    def run(state: VimState, command: VimCommand) -> VimState:
        return _insert(_change(state, cursor=find(state)), state)

    return run


def _after_cursor(state: VimState) -> int:
    return min(state.cursor + 1, line_end(state.text, state.cursor))


def _open_line(state: VimState, command: VimCommand) -> VimState:
    is_below = command.name == "o"
    edge = (line_end if is_below else line_start)(state.text, state.cursor)
    return _insert(_replace(state, edge, edge, "\n", edge + is_below), state)


def _run_as(operator: str, name: str) -> Callable[[VimState, VimCommand], VimState]:
    """A command that is another word for an operator with a motion: x is dl."""

    def run(state: VimState, command: VimCommand) -> VimState:
        same = msgspec.structs.replace(command, operator=operator, name=name)
        return _run_operator(state, same)

    return run


def _replace_character(state: VimState, command: VimCommand) -> VimState:
    first, last = state.cursor, state.cursor + command.count
    if last > line_end(state.text, first):
        return state
    new = command.argument * command.count
    return _record(_replace(state, first, last, new, last - 1), state)


def _swap_case(state: VimState, command: VimCommand) -> VimState:
    first = state.cursor
    last = min(first + command.count, line_end(state.text, first))
    new = state.text[first:last].swapcase()
    return _record(_replace(state, first, last, new, first + len(new)), state)


def _join_lines(state: VimState, command: VimCommand) -> VimState:
    joined = state
    for _ in range(max(command.count - 1, 1)):
        end = line_end(joined.text, joined.cursor)
        if end == len(joined.text):
            break
        last = first_nonblank(joined.text, end + 1)
        is_one_empty = end == line_start(joined.text, end) or last == line_end(joined.text, last)
        blank = "" if is_one_empty else " "
        joined = _replace(joined, end, last, blank, end)
    return _record(joined, state) if joined is not state else state


def _paste(state: VimState, command: VimCommand) -> VimState:
    text, cursor = state.text, state.cursor
    count = min(command.count, MAX_PASTED_CHARS // max(len(state.register), 1))
    pasted, is_after = state.register * count, command.name == "p"
    if not pasted:
        return state
    if not state.has_lines:
        place = _after_cursor(state) if is_after else cursor
        return _record(_replace(state, place, place, pasted, place + len(pasted) - 1), state)
    lines = "\n".join([state.register] * count)
    if is_after:
        place = line_end(text, cursor)
        changed = _replace(state, place, place, "\n" + lines, place + 1)
    else:
        place = line_start(text, cursor)
        changed = _replace(state, place, place, lines + "\n", place)
    return _record(_change(changed, cursor=first_nonblank(changed.text, changed.cursor)), state)


def _undo(state: VimState, command: VimCommand) -> VimState:
    return _step_back(state, forward=False)


def _step_back(state: VimState, *, forward: bool) -> VimState:
    versions, others = (state.redo, state.undo) if forward else (state.undo, state.redo)
    if not versions:
        return _change(state, keys="")
    *rest, version = versions
    current = (*others, TextVersion(state.text, state.cursor))
    undo, redo = (current, tuple(rest)) if forward else (tuple(rest), current)
    return _change(
        state, text=version.text, cursor=version.cursor, undo=undo, redo=redo, keys="",
        mode="normal",
    )  # fmt: skip


def _begin_visual(state: VimState, command: VimCommand) -> VimState:
    return _change(state, mode="visual", anchor=state.cursor, selects_lines=command.name == "V")


_COMMANDS: dict[str, Callable[[VimState, VimCommand], VimState]] = {
    "i": _insert_at(lambda state: state.cursor),
    "a": _insert_at(_after_cursor),
    "I": _insert_at(lambda state: first_nonblank(state.text, state.cursor)),
    "A": _insert_at(lambda state: line_end(state.text, state.cursor)),
    "o": _open_line,
    "O": _open_line,
    "x": _run_as("d", "l"),
    "X": _run_as("d", "h"),
    "s": _run_as("c", "l"),
    "D": _run_as("d", "$"),
    "C": _run_as("c", "$"),
    "S": _run_as("c", "c"),
    "Y": _run_as("y", "y"),
    "r": _replace_character,
    "~": _swap_case,
    "J": _join_lines,
    "p": _paste,
    "P": _paste,
    "u": _undo,
    "v": _begin_visual,
    "V": _begin_visual,
}


# ------------------------------------------------------------------ visual mode


def _run_visual(state: VimState, command: VimCommand) -> VimState:
    operator = {"x": "d", "s": "c"}.get(command.name, command.name)
    if operator in ("d", "c", "y"):
        first, last = state.selection
        return _apply_operator(
            _change(state, cursor=first), operator, first, last, has_lines=state.selects_lines
        )
    if command.name in ("v", "V"):
        selects_lines = command.name == "V"
        if selects_lines == state.selects_lines:
            return _change(state, mode="normal")
        return _change(state, selects_lines=selects_lines)
    if command.name == "o":
        return _change(state, cursor=state.anchor, anchor=state.cursor)
    return _move(state, command)


# ------------------------------------------------------------------ changes


def _change(state: VimState, **fields: object) -> VimState:
    return msgspec.structs.replace(state, **fields)


def _replace(state: VimState, first: int, last: int, new: str, cursor: int) -> VimState:
    text = state.text[:first] + new + state.text[last:]
    return _change(state, text=text, cursor=max(cursor, 0))


def _record(state: VimState, before: VimState) -> VimState:
    """The changed state; `u` goes back to the state before."""
    if state.text == before.text:
        return state
    versions = (*before.undo, TextVersion(before.text, before.cursor))
    return _change(state, undo=versions[-MAX_UNDO:], redo=())


def _insert(state: VimState, before: VimState) -> VimState:
    return _change(state, mode="insert", before=TextVersion(before.text, before.cursor))


def _leave_insert(state: VimState) -> VimState:
    left = _change(state, mode="normal", keys="")
    if state.text != state.before.text:
        left = _change(left, undo=(*state.undo, state.before)[-MAX_UNDO:], redo=())
    return _clamp(_change(left, cursor=max(state.cursor - 1, line_start(state.text, state.cursor))))


def _clamp(state: VimState) -> VimState:
    """In normal mode the cursor is on a character, unless the line is empty."""
    if state.mode == "insert":
        return state
    start, end = line_start(state.text, state.cursor), line_end(state.text, state.cursor)
    return _change(state, cursor=max(min(state.cursor, end - 1), start))
