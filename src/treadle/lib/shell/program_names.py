"""Names of programs: the bare name behind a path or a version, and which programs are shells.

Knows no rules and no options. Used by the analysis of commands, the rules and the hooks.
"""

from treadle.lib.shell.ast import Word
from treadle.lib.text.word_set import word_set

SHELLS = word_set("sh bash dash zsh ksh ash rbash mksh yash pdksh")
_SYSTEM_FOLDERS = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")


def get_program_name(word: Word | None) -> str | None:
    """The bare name of a program; a path counts as its name only in the system's folders."""
    if word is None or word.text is None or word.is_glob:
        return None
    text = word.text
    for folder in _SYSTEM_FOLDERS:
        if text.startswith(folder) and "/" not in text[len(folder) :]:
            return text[len(folder) :]
    return text


def strip_version(name: str) -> str:
    """`python` for `python3.11`."""
    return name.rstrip("0123456789.")
