"""Programs that carry files from one place to another: dd, curl, rsync, scp, zip, split.

What they read and write is said by their words in ways of their own. The same promises as the
table's: what is not known to be harmless is a doubt or not plain.
"""

import re
from collections.abc import Callable, Sequence

from treadle.policy.listed import listed
from treadle.policy.shell.effects import Effects, Program, table_effects
from treadle.policy.shell.facts import Word
from treadle.policy.shell.options import Grammar, Option, scan

_CURL = Program("text", Grammar("odTKHXAebcFuUxmwrCtYyzEDPQ", listed(
    "--output --data --upload-file --config --header --request --form --user --dump-header"),
    writes=listed("-o --output -D --dump-header -c --cookie-jar --trace --trace-ascii "
                  "--stderr --etag-save --hsts --alt-svc --libcurl --output-dir"),
    reads=listed("-T --upload-file"),
    runs=listed("-K --config -O --remote-name --remote-name-all -J --netrc-file --engine "
                "--cert -E --key --unix-socket --abstract-unix-socket")), plain=False)  # fmt: skip
_SENT = re.compile(r"(?:@|=<)([^;,]+)")


def _curl(words: Sequence[Word]) -> Effects:
    found = table_effects(_CURL, words)
    reads, doubts = list(found.reads), list(found.doubts)
    for word in words:
        text = word.text or ""
        if text.lower().startswith("file:"):
            reads.append(Word(word.source, re.sub(r"(?i)file:(?://[^/]*)?", "", text)))
        elif "://" not in text:
            # `-d @file`, `-F x=@file`, `-H @file`: whatever follows may be a file that is sent.
            reads += [Word(word.source, path) for path in _SENT.findall(text)]
        if "%output{" in text:
            doubts.append("a format that writes a file")
    return Effects(reads=tuple(reads), writes=found.writes, doubts=tuple(doubts))


def _dd(words: Sequence[Word]) -> Effects:
    values = [(w, *(w.text or "").partition("=")[::2]) for w in words]
    return Effects(
        reads=tuple(Word(w.source, value) for w, key, value in values if key == "if"),
        makes=tuple(Word(w.source, value) for w, key, value in values if key == "of"),
    )


_RSYNC = Grammar(
    "efBTM",
    listed("--rsh --rsync-path --exclude --include --filter --files-from --exclude-from"),
    reads=listed("--files-from --exclude-from --include-from --password-file --compare-dest"),
    writes=listed(
        "--log-file --write-batch --only-write-batch --backup-dir --temp-dir -T --partial-dir"
    ),
    runs=listed(
        "-e --rsh --rsync-path --daemon --remove-source-files --read-batch -M -L --copy-links "
        "--copy-unsafe-links"
    ),
)
_SCP = Grammar("oFSiJlPcDX", runs=listed("-o -F -S -J -D"))
_ZIP = Grammar("btniPxOZ", writes=listed("-O --output-file -b"),
               runs=listed("-T --test -TT --unzip-command -m --move -@"))  # fmt: skip
_SPLIT = Grammar("abClnt", listed("--additional-suffix --suffix-length --bytes --lines --number"),
                 runs=listed("--filter"))  # fmt: skip


def _given(words: Sequence[Word], grammar: Grammar) -> tuple[list[Word], Effects]:
    """The operands, and what the options do."""
    operands: list[Word] = []
    reads: list[Word] = []
    writes: list[Word] = []
    doubts: list[str] = []
    for item in scan(words, grammar):
        if not isinstance(item, Option):
            operands.append(item)
        elif item.name in grammar.runs:
            doubts.append(f"{item.name} does more than the command's name says")
        elif item.value is not None and item.name in grammar.reads:
            reads.append(item.value)
        elif item.value is not None and item.name in grammar.writes:
            writes.append(item.value)
    return operands, Effects(reads=tuple(reads), writes=tuple(writes), doubts=tuple(doubts))


def _copier(grammar: Grammar) -> Callable[[Sequence[Word]], Effects]:
    """From all operands but the last to the last; those on other machines are not files here."""

    def effects(words: Sequence[Word]) -> Effects:
        operands, found = _given(words, grammar)
        here = [":" not in (w.text or "").partition("/")[0] for w in operands]
        local = [w for w, is_here in zip(operands[:-1], here, strict=False) if is_here]
        makes = tuple(operands[-1:]) if len(operands) > 1 and here[-1] else ()
        return Effects(
            reads=(*found.reads, *local), writes=found.writes, makes=makes, doubts=found.doubts
        )

    return effects


def _zip(words: Sequence[Word]) -> Effects:
    operands, found = _given(words, _ZIP)
    reads = (*found.reads, *operands[1:])
    return Effects(reads=reads, writes=found.writes, makes=tuple(operands[:1]), doubts=found.doubts)


def _split(words: Sequence[Word]) -> Effects:
    operands, found = _given(words, _SPLIT)
    made = operands[1] if len(operands) > 1 else Word("x", "x")
    return Effects(reads=tuple(operands[:1]), makes=(made,), doubts=found.doubts)


CARRIERS: dict[str, Callable[[Sequence[Word]], Effects]] = {
    "curl": _curl,
    "dd": _dd,
    "rsync": _copier(_RSYNC),
    "scp": _copier(_SCP),
    "zip": _zip,
    "split": _split,
}
