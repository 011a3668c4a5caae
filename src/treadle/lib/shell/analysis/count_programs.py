"""Programs that show sizes, counts and other facts about files, and none of their content.

Their options are checked as those of any program; here only plain ones (`-l`, `-lh`) count. Used by
`find.py` and `evaluation/listed_names.py`, for commands that get names which are known only when
they run.
"""

import re
from collections.abc import Sequence

from treadle.lib.shell.ast import Word
from treadle.lib.shell.program_names import get_program_name
from treadle.lib.text.word_set import word_set

COUNTING_PROGRAMS = word_set("wc stat du ls file basename dirname md5sum sha1sum sha256sum")
_PLAIN_OPTION = re.compile(r"-[A-Za-z0-9]+")
_READING_OPTIONS = {"file": "fm", "md5sum": "c", "sha1sum": "c", "sha256sum": "c", "du": "X"}


def is_counting_run(words: Sequence[Word]) -> bool:
    """Whether the words are such a program with plain options and no files."""
    name = get_program_name(words[0]) if words else None
    if name not in COUNTING_PROGRAMS:
        return False
    reading = set(_READING_OPTIONS.get(name or "", ""))
    return all(
        _PLAIN_OPTION.fullmatch(word.text or "") and reading.isdisjoint(word.text or "")
        for word in words[1:]
    )
