"""Text that a person is shown: it may not move a cursor, fill a clipboard or hide what it says.

    harmless(text)       for reading: escape sequences left out, other controls made visible
    visible(text)        for deciding: nothing left out, whatever is not seen made visible; one line
    escaped_json(text)   for JSON: the same value, without raw controls and marks of direction

What a model, a repository, a server or an earlier session wrote passes one of them on its way to a
terminal. It is in the core because commands, tools, rules and hosts all show such text, and may not
know each other.
"""

from __future__ import annotations

import re

# Escape sequences: a terminal obeys them, and the rest of the text can do without.
ESCAPE_SEQUENCE = re.compile(
    r"\x1b\][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC: titles, links, the clipboard (52)
    r"|\x1b[PX^_][^\x1b\x9c]*(?:\x1b\\|\x9c)?"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor, modes
    r"|\x1b[ -/]*[0-~]?"  # every other escape sequence
)

# Controls of the second kind, marks that turn the reading direction, and signs without a width.
# Not the two joiners and the selectors of variants: scripts and emoji are written with them.
_BIDI_CONTROLS = r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_INVISIBLE_RANGES = (
    r"\x7f-\x9f\xad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f" + _BIDI_CONTROLS
)
INVISIBLE = re.compile(rf"[\x00-\x08\x0b-\x1f{_INVISIBLE_RANGES}]")
_JSON_UNSAFE = re.compile(rf"[\x7f-\x9f\ud800-\udfff{_BIDI_CONTROLS}]")
# Printable by name only: they take no room, or look like a blank.
_BLANK_LOOKING = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    r"\U000e0100-\U000e01ef]"
)


def strip_escapes(text: str) -> str:
    """Text of many lines that no terminal takes for a command; newlines and tabs stay."""
    if INVISIBLE.search(text) is None:
        return text
    return INVISIBLE.sub(_escape_match, ESCAPE_SEQUENCE.sub("", text.replace("\r\n", "\n")))


def escape_invisible(text: str, keep: str = "") -> str:
    """A name, a command, a rule: a person decides by it, so nothing of it is hidden.

    `keep` are characters that stay as they are, such as newlines in a text of many.
    """
    if text.isprintable() and _BLANK_LOOKING.search(text) is None:
        return text
    return "".join(
        char if _is_visible(char) or char in keep else escape_char(char) for char in text
    )


def escape_json(text: str) -> str:
    """Encoded JSON, where these characters can only stand inside of strings."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _JSON_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def escape_char(char: str) -> str:
    """What is shown in the place of a character that is not seen: ␛, or \\u202e."""
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_visible(char: str) -> bool:
    return char.isprintable() and _BLANK_LOOKING.match(char) is None


def _escape_match(match: re.Match[str]) -> str:
    return escape_char(match[0])
