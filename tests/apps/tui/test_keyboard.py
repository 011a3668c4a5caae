"""Input from a terminal: keys, and pastes that arrive in pieces."""

from collections.abc import Iterable
from functools import partial

from textual import constants, events
from textual.message import Message

from tests.work import count_work
from treadle.apps.tui.input.keyboard import PasteParser

BEGIN, END = "\x1b[200~", "\x1b[201~"


def describe(messages: Iterable[Message]) -> list[str]:
    found = []
    for message in messages:
        if isinstance(message, events.Paste):
            found.append(f"paste {message.text!r}")
        elif isinstance(message, events.Key):
            found.append(message.key)
    return found


def test_a_paste_is_one_wherever_the_stream_is_cut():
    stream = f"a{BEGIN}two\nlines \x1b[20 é{END}b{BEGIN}{END}\r"
    expected = ["a", "paste 'two\\nlines \\x1b[20 é'", "b", "paste ''", "enter"]
    assert describe(PasteParser().feed(stream)) == expected
    begin = stream.index(BEGIN)
    for cut in range(1, len(stream)):
        parser = PasteParser()
        found = describe(parser.feed(stream[:cut])) + describe(parser.feed(stream[cut:]))
        if not begin < cut < begin + len(BEGIN):  # textual's own parser has seen the start
            assert found == expected, cut
        assert found[0] == "a"


def test_letter_by_letter_it_is_the_same():
    parser, found = PasteParser(), list[str]()
    for letter in f"{BEGIN}ab{END}c":
        found += describe(parser.feed(letter))
    assert found == ["paste 'ab'", "c"]


def test_a_paste_that_the_terminal_does_not_mark_sends_nothing():
    now = 0.0
    parser = PasteParser(lambda: now)
    assert describe(parser.feed("one\rtwo\r\n\tth")) == ["paste 'one\\ntwo\\n\\tth'"]
    assert describe(parser.feed("ree\r")) == ["paste 'ree\\n'"]  # the next part of it
    now = 1.0
    assert describe(parser.feed("yes\r")) == ["y", "e", "s", "enter"]
    assert describe(parser.feed("\r")) == ["enter"]
    assert describe(parser.feed("\x1b[A\rx")) == ["up", "enter", "x"]


def test_fast_typing_sends_each_message_where_the_terminal_marks_its_pastes():
    for report in ("\x1b[?2004;1$y", "\x1b[?2004;3$y", f"{BEGIN}x{END}"):
        dialogs: list[str] = []
        parser = PasteParser(has_dialog=partial(bool, dialogs))
        list(parser.feed(report))
        assert describe(parser.feed("ab\rc\r")) == ["a", "b", "enter", "c", "enter"]
        assert describe(parser.feed(f"a{BEGIN}b\nc{END}\r")) == ["a", "paste 'b\\nc'", "enter"]
        dialogs.append("an approval")  # which it does not answer
        assert describe(parser.feed("y\rc\r")) == ["paste 'y\\nc\\n'"]
    for report in ("\x1b[?2004;0$y", "\x1b[?2004;2$y", "\x1b[?2026;1$y"):
        parser = PasteParser()
        list(parser.feed(report))
        assert describe(parser.feed("ab\rc\r")) == ["paste 'ab\\nc\\n'"]


def test_alt_with_enter_or_a_digit_is_a_key_also_in_terminals_that_send_an_escape_before_it():
    parser = PasteParser()
    assert describe(parser.feed("a\x1b\rb")) == ["a", "alt+enter", "b"]
    assert describe(parser.feed("\x1b1\x1b[13;3u")) == ["alt+1", "alt+enter"]


def test_alt_with_a_letter_that_has_no_meaning_types_nothing(monkeypatch):
    monkeypatch.setattr(constants, "ESCAPE_DELAY", 0.0)
    for letter in "ptmdyP@é":
        parser = PasteParser()
        found = [*parser.feed(f"\x1b{letter}"), *parser.tick()]
        assert describe(found) == [f"alt+{letter}"]
        assert all(isinstance(key, events.Key) and not key.is_printable for key in found)
    parser = PasteParser()
    assert describe(parser.feed("\x1bp\x1bt/c")) == ["alt+p", "alt+t", "slash", "c"]
    assert describe(parser.feed("\x1bb\x1bf\x1b[A")) == ["ctrl+left", "ctrl+right", "up"]
    vim = PasteParser(splits_escape=lambda: True)
    assert describe([*vim.feed("\x1bdw"), *vim.tick()]) == ["escape", "d", "w"]


def test_with_vim_keys_escape_and_a_letter_that_arrive_together_are_two_keys():
    parser = PasteParser(splits_escape=lambda: True)
    assert describe(parser.feed("a\x1b0x")) == ["a", "escape", "0", "x"]
    assert describe(parser.feed("\x1bb\x1b[A\x1b\r")) == ["escape", "b", "up", "alt+enter"]


def test_a_megabyte_is_pasted_in_pieces_and_not_character_by_character():
    text = "lorem ipsum dolor\n" * 60_000
    stream = f"{BEGIN}{text}{END}"
    parser = PasteParser()
    with count_work() as work:
        found = [
            message
            for start in range(0, len(stream), 65_536)
            for message in parser.feed(stream[start : start + 65_536])
        ]
    assert work.calls < 1_000
    assert work.scanned < 20 * len(stream)
    assert isinstance(found[0], events.Paste)
    assert found[0].text == text
