"""The vim keys, as a table: a text with its cursor (|), keys, and the text after them."""

import msgspec
import pytest

from treadle.apps.tui.vim.vim_keys import VimState, press

ESC = "<esc>"
REDO = "<ctrl+r>"


def begin(marked: str) -> VimState:
    """A state in normal mode; `|` marks the cursor."""
    return VimState(text=marked.replace("|", "", 1), cursor=marked.index("|"), mode="normal")


def type_keys(state: VimState, keys: str) -> VimState:
    """Press keys; in insert mode they are text, as the widget would insert it."""
    names = keys.replace(ESC, "\x1b").replace(REDO, "\x12")
    for character in names:
        key = {"\x1b": "escape", "\x12": "ctrl+r"}.get(character, character)
        after = press(state, key)
        if after is None and state.mode == "insert":
            text = state.text[: state.cursor] + character + state.text[state.cursor :]
            after = msgspec.structs.replace(state, text=text, cursor=state.cursor + 1)
        state = after or state
    return state


def show(state: VimState) -> str:
    return f"{state.text[: state.cursor]}|{state.text[state.cursor :]}"


MOTIONS = [
    ("on|e two", "h", "o|ne two"),
    ("|one", "h", "|one"),
    ("|one", "2l", "on|e"),
    ("on|e", "l", "on|e"),
    ("o|ne\ntwo", "j", "one\nt|wo"),
    ("one\nt|wo", "k", "o|ne\ntwo"),
    ("on|e\n\nthree", "j", "one\n|\nthree"),
    ("one|", "k", "on|e"),
    ("|one two", "w", "one |two"),
    ("|one.two", "w", "one|.two"),
    ("|one.two three", "W", "one.two |three"),
    ("|one two three", "2w", "one two |three"),
    ("|one\ntwo", "w", "one\n|two"),
    ("one |two", "w", "one tw|o"),
    ("one tw|o", "b", "one |two"),
    ("one |two", "b", "|one two"),
    ("a.b cc|c", "2B", "|a.b ccc"),
    ("|one two", "e", "on|e two"),
    ("on|e two", "e", "one tw|o"),
    ("|a.b c", "E", "a.|b c"),
    ("  on|e", "0", "|  one"),
    ("  on|e", "^", "  |one"),
    ("|one\ntwo", "$", "on|e\ntwo"),
    ("|one\ntwo", "2$", "one\ntw|o"),
    ("one\ntwo\nth|ree", "gg", "|one\ntwo\nthree"),
    ("|one\ntwo\n  three", "G", "one\ntwo\n  |three"),
    ("|one\ntwo\nthree", "2G", "one\n|two\nthree"),
    ("|one two", "fo", "one tw|o"),
    ("|one two two", "2ft", "one two |two"),
    ("|one two", "tw", "one |two"),
    ("one tw|o", "Fn", "o|ne two"),
    ("one tw|o", "Tn", "on|e two"),
    ("|a.b.c.d", "f.;", "a.b|.c.d"),
    ("|a.b.c.d", "f.;,", "a|.b.c.d"),
    ("|one", "fz", "|one"),
    ("|one\ntwo", "fw", "|one\ntwo"),
]
CHANGES = [
    ("o|ne", "x", "o|e"),
    ("on|e", "x", "o|n"),
    ("|one two", "3x", "| two"),
    ("o|ne", "9x", "|o"),
    ("on|e", "X", "o|e"),
    ("|one two", "dw", "|two"),
    ("|one two three", "d2w", "|three"),
    ("|one two three", "2dw", "|three"),
    ("one |two\nthree", "dw", "one| \nthree"),
    ("one |two", "db", "|two"),
    ("|one two", "de", "| two"),
    ("on|e two", "d$", "o|n"),
    ("on|e two", "D", "o|n"),
    ("one |two", "d0", "|two"),
    ("  one |two", "d^", "  |two"),
    ("|one, two", "df,", "| two"),
    ("|one, two", "dt,", "|, two"),
    ("one, tw|o", "dF,", "one|o"),
    ("one\nt|wo\nthree", "dd", "one\n|three"),
    ("one\nt|wo", "dd", "|one"),
    ("|one", "dd", "|"),
    ("o|ne\ntwo\nthree", "2dd", "|three"),
    ("o|ne\ntwo\nthree", "dj", "|three"),
    ("one\ntw|o\nthree", "dk", "|three"),
    ("one\ntw|o\nthree", "dgg", "|three"),
    ("one\ntw|o\nthree", "dG", "|one"),
    ("one t|wo three", "diw", "one | three"),
    ("one t|wo three", "daw", "one |three"),
    ("one t|wo", "daw", "on|e"),
    ("|one two", f"cwten{ESC}", "te|n two"),
    ("one |two three", f"c2wx{ESC}", "one |x"),
    ("o|ne\ntwo", f"ccx{ESC}", "|x\ntwo"),
    ("o|ne\ntwo", f"Sx{ESC}", "|x\ntwo"),
    ("one t|wo", f"Cx{ESC}", "one t|x"),
    ("one t|wo", f"ciwx{ESC}", "one |x"),
    ("|one", f"sx{ESC}", "|xne"),
    ("|one", "rx", "|xne"),
    ("|one", "2rx", "x|xe"),
    ("|one", "9rx", "|one"),
    ("|one", "~", "O|ne"),
    ("|one\n  two", "J", "one| two"),
    ("one tw|o", "J", "one tw|o"),
    ("o|ne", f"ix{ESC}", "o|xne"),
    ("o|ne", f"ax{ESC}", "on|xe"),
    ("  o|ne", f"Ix{ESC}", "  |xone"),
    ("o|ne", f"Ax{ESC}", "one|x"),
    ("o|ne\ntwo", f"ox{ESC}", "one\n|x\ntwo"),
    ("one\nt|wo", f"Ox{ESC}", "one\n|x\ntwo"),
    ("o|ne", ESC, "o|ne"),
]
REGISTERS = [
    ("|one two", "dwP", "one| two"),
    ("|one two", "dwp", "tone| wo"),
    ("|ab", "xp", "b|a"),
    ("|one\ntwo", "yyp", "one\n|one\ntwo"),
    ("|one\ntwo", "yyP", "|one\none\ntwo"),
    ("|one\ntwo", "Yjp", "one\ntwo\n|one"),
    ("|one\ntwo", "ddp", "two\n|one"),
    ("|one two", "yw2P", "one one| one two"),
    ("|one\ntwo\nthree", "yjGp", "one\ntwo\nthree\n|one\ntwo"),
    ("|one", "p", "|one"),
]
UNDONE = [
    ("|one", "xu", "|one"),
    ("|one", "xxuu", "|one"),
    ("|one", f"xxuu{REDO}", "|ne"),
    ("|one", f"xxuu{REDO}{REDO}", "|e"),
    ("|one", f"xu{REDO}u", "|one"),
    ("|one", f"Atwo{ESC}u", "|one"),
    ("|one two", f"cwten{ESC}u", "|one two"),
    ("|one", f"otwo{ESC}u{REDO}", "one\ntw|o"),
    ("|one", "u", "|one"),
    ("|one", f"xux{REDO}", "|ne"),
    ("one\nt|wo", "ddu", "one\nt|wo"),
]
VISUAL = [
    ("|one two", "vex", "| two"),
    ("|one two", "vwd", "|wo"),
    ("one |two", "vbd", "|wo"),
    ("|one two", "vecx" + ESC, "|x two"),
    ("|one two", "vey$p", "one twoon|e"),
    ("one\nt|wo\nthree", "Vd", "one\n|three"),
    ("o|ne\ntwo\nthree", "Vjd", "|three"),
    ("|one two", f"ve{ESC}x", "on| two"),
    ("|one two", "vex" + "u", "|one two"),
    ("one |two", "vlohd", "one|o"),
]


@pytest.mark.parametrize(
    ("before", "keys", "after"), [*MOTIONS, *CHANGES, *REGISTERS, *UNDONE, *VISUAL]
)
def test_keys_do_what_they_do_in_vim(before, keys, after):
    assert show(type_keys(begin(before), keys)) == after


def test_insert_mode_leaves_every_key_but_escape_to_the_widget():
    state = VimState(text="one", cursor=3)
    assert press(state, "x") is None
    assert press(state, "ctrl+r") is None
    left = press(state, "escape")
    assert left is not None
    assert (left.mode, show(left)) == ("normal", "on|e")


def test_escape_in_normal_mode_is_for_the_app_unless_it_cancels_something():
    assert press(begin("|one"), "escape") is None
    half = press(begin("|one"), "d")
    assert half is not None
    cancelled = press(half, "escape")
    assert cancelled is not None
    assert show(type_keys(cancelled, "w")) == "on|e"


def test_an_unknown_key_changes_nothing():
    for keys in ("Z", "dZ", "gz", "&", "3&"):
        assert show(type_keys(begin("o|ne"), keys)) == "o|ne"


def test_keys_of_the_terminal_are_not_for_vim():
    for key in ("enter", "up", "tab", "ctrl+v", "f1"):
        assert press(begin("|one"), key) is None


def test_a_huge_count_pastes_a_bounded_text():
    state = type_keys(begin("|" + "word " * 2_000), "yy999999999p999999999w")
    assert len(state.text) < 2_000_000
