"""Makes text safe to show: it cannot move the cursor, set the clipboard or hide characters.

    strip_escapes(text)      to read: removes escape sequences, shows other control characters
    escape_invisible(text)   to decide on: removes nothing, shows every invisible character
    escape_json(text)        for JSON: the same value, without raw control and bidi characters

Text of a model, a repository, a server or an earlier session passes one of these before a terminal
shows it. Used wherever such text is shown.
"""

from __future__ import annotations

from treadle.lib.text.lazy_regex import compile_lazily

# Escape sequences are commands to the terminal; the text is complete without them.
ESCAPE_SEQUENCE = compile_lazily(
    r"\x1b\][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC: titles, links, the clipboard (52)
    r"|\x1b[PX^_][^\x1b\x9c]*(?:\x1b\\|\x9c)?"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor, modes
    r"|\x1b[ -/]*[0-~]?"  # every other escape sequence
)

# C1 controls, bidi controls and zero-width characters. Not the two joiners and the variation
# selectors: scripts and emoji need them.
_BIDI_CONTROLS = r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_INVISIBLE_RANGES = (
    r"\x7f-\x9f\xad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f" + _BIDI_CONTROLS
)
INVISIBLE = compile_lazily(rf"[\x00-\x08\x0b-\x1f{_INVISIBLE_RANGES}]")
_JSON_UNSAFE = compile_lazily(rf"[\x7f-\x9f\ud800-\udfff{_BIDI_CONTROLS}]")
# Printable for Python, but without width, or with the look of a space.
_BLANK_LOOKING = compile_lazily(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    r"\U000e0100-\U000e01ef]"
)


def strip_escapes(text: str) -> str:
    """Multi-line text without commands to a terminal; newlines and tabs stay."""
    if INVISIBLE.search(text) is None:
        return text
    plain = ESCAPE_SEQUENCE.sub("", text.replace("\r\n", "\n"))
    return INVISIBLE.sub(lambda match: escape_char(match[0]), plain)


def escape_invisible(text: str, keep: str = "") -> str:
    """Show every invisible character of a name, command or rule that the user decides on.

    Characters in `keep` stay as they are, for example newlines in a multi-line text.
    """
    if text.isprintable() and _BLANK_LOOKING.search(text) is None:
        return text
    return "".join(c if _is_visible(c) or c in keep else escape_char(c) for c in text)


def escape_json(text: str) -> str:
    """Escape in encoded JSON, where these characters can only be inside strings."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _JSON_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def escape_char(char: str) -> str:
    """The visible form of an invisible character: ␛, or \\u202e."""
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_visible(char: str) -> bool:
    return char.isprintable() and _BLANK_LOOKING.match(char) is None
