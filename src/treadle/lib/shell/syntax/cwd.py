"""In which folders the shell may be after `cd`: a small set of possibilities, or unknown.

Knows no file system: a path is the sequence of `cd` arguments, which evaluation/ resolves.
"""

from collections.abc import Sequence

from treadle.lib.shell.ast import CdPaths, Word

_MAX_CD_PATHS = 6


def apply_cd(before: CdPaths | None, argv: Sequence[Word]) -> CdPaths | None:
    """The folders after `cd …` or `pushd …` succeeded."""
    name, operands = argv[0].text, list(argv[1:])
    while operands and operands[0].text in ("-P", "-L", "-e", "--"):
        if operands.pop(0).text == "--":
            break
    if before is None or name == "popd" or len(operands) > 1 or (name == "pushd" and not operands):
        return None
    if not operands:
        return (("~",),)
    target = operands[0]
    if not target.text or target.is_glob or target.text[0] in "-+":
        return None
    text = target.text
    if text.startswith("~") and not target.has_tilde:
        text = "./" + text
    if text.startswith(("/", "~")):
        return ((text,),)
    return tuple((*path, text) for path in before)


def merge_cd_paths(a: CdPaths | None, b: CdPaths | None) -> CdPaths | None:
    """The union of two sets of folders."""
    if a is None or b is None:
        return None
    both = tuple(dict.fromkeys((*a, *b)))
    return both if len(both) <= _MAX_CD_PATHS else None
