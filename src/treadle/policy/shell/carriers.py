"""Programs that carry files from one place to another: dd, curl, rsync, scp, zip, split.

What they read and write is said by their words in ways of their own. The same promises as the
table's: what is not known to be harmless is a doubt or not plain.
"""

import re
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from treadle.policy.listed import listed
from treadle.policy.shell.effects import Effects, Program, table_effects
from treadle.policy.shell.facts import Word
from treadle.policy.shell.options import Grammar, Option, scan

_CURL = Program("text", Grammar("odTKHXAebcFuUxmwrCtYyzEDPQ", listed(
    "--output --data --upload-file --config --header --request --form --user --dump-header "
    "--data-raw --data-binary --data-ascii --data-urlencode --json --url-query --form-string "
    "--user-agent --referer --proxy --max-time --connect-timeout --retry --retry-delay --url "
    "--write-out --range --continue-at --cacert --resolve --limit-rate"),
    writes=listed("-o --output -D --dump-header -c --cookie-jar --trace --trace-ascii "
                  "--stderr --etag-save --hsts --alt-svc --libcurl --output-dir"),
    reads=listed("-T --upload-file -b --cookie"),
    runs=listed("--proto --proto-default -n --netrc --netrc-optional --variable "
                "-K --config -O --remote-name --remote-name-all -J --netrc-file --engine "
                "--cert -E --key --unix-socket --abstract-unix-socket")), plain=False)  # fmt: skip
_SENT = re.compile(r"(?:@|=<)([^;,]+)")
_ADDRESS = re.compile(r"https?://", re.IGNORECASE)


def _curl(words: Sequence[Word]) -> Effects:
    found = table_effects(_CURL, words)
    reads, doubts = list(found.reads), list(found.doubts)
    addresses = [item for item in scan(words, _CURL.grammar) if isinstance(item, Word)]
    if any(_multiplies(word.text or "") for word in (*addresses, *found.reads, *found.writes)):
        doubts.append("curl makes other names of this one")
    for word in words:
        text = word.text or ""
        if text.lower().startswith("file:"):
            reads.append(Word(word.source, re.sub(r"(?i)file:(?://[^/]*)?", "", text)))
        elif "file:" in text.lower():
            doubts.append("a file where an address is expected")
        elif not (word in addresses and _ADDRESS.match(text)):
            # `-d @file`, `-F x=@file`, `-H @file`: whatever follows may be a file that is sent.
            reads += [Word(word.source, path.strip('"')) for path in _SENT.findall(text)]
        if "%output{" in text:
            doubts.append("a format that writes a file")
    return Effects(reads=tuple(reads), writes=found.writes, doubts=tuple(doubts))


def _multiplies(text: str) -> bool:
    """Whether curl expands it; in an address # only names a place on its page."""
    return any(c in text for c in "{[") or ("#" in text and not _ADDRESS.match(text))


def _dd(words: Sequence[Word]) -> Effects:
    values = [(w, *(w.text or "").partition("=")[::2]) for w in words]
    return Effects(
        reads=tuple(Word(w.source, value) for w, key, value in values if key == "if"),
        makes=tuple(Word(w.source, value) for w, key, value in values if key == "of"),
    )


_RSYNC = Grammar(
    "efBTM",
    listed(
        "--rsh --rsync-path --exclude --include --filter --files-from --exclude-from --suffix "
        "--bwlimit --max-size --min-size --max-delete --timeout --contimeout --port --chmod "
        "--chown --usermap --groupmap --block-size --modify-window --protocol --iconv --info "
        "--debug --out-format --log-file-format --checksum-choice --compress-choice "
        "--compress-level --skip-compress --sockopts --address --outbuf --stop-at --stop-after"
    ),
    reads=listed(
        "--exclude-from --include-from --password-file --compare-dest --copy-dest --link-dest"
    ),
    writes=listed(
        "--log-file --write-batch --only-write-batch --backup-dir --temp-dir -T --partial-dir"
    ),
    runs=listed(
        "--files-from --config --early-input --remote-option "
        "-e --rsh --rsync-path --daemon --remove-source-files --read-batch -M -L --copy-links "
        "--copy-unsafe-links"
    ),
)
_SCP = Grammar("oFSiJlPcDX", runs=listed("-o -F -S -J -D"))
_ZIP = Grammar("btniPxOZ", writes=listed("-O --output-file -b"),
               runs=listed("-T --test -TT --unzip-command -m --move -@"))  # fmt: skip
_SUFFIX = re.compile(r"\.\w+")
_SPLIT = Grammar("abClnt", listed("--additional-suffix --suffix-length --bytes --lines --number"),
                 runs=listed("--filter"))  # fmt: skip


def _given(words: Sequence[Word], grammar: Grammar) -> tuple[list[Word], Effects]:
    """The operands, and what the options do; `recurses` if one of them says -r or -a."""
    operands: list[Word] = []
    reads: list[Word] = []
    writes: list[Word] = []
    doubts: list[str] = []
    recurses = False
    for item in scan(words, grammar):
        if not isinstance(item, Option):
            operands.append(item)
            continue
        recurses = recurses or item.name in ("-r", "-R", "-a", "--recursive", "--archive")
        if item.name in grammar.runs:
            doubts.append(f"{item.name} does more than the command's name says")
        elif item.value is not None and item.name in grammar.reads:
            reads.append(item.value)
        elif item.value is not None and item.name in grammar.writes:
            writes.append(item.value)
    return operands, Effects(
        reads=tuple(reads), writes=tuple(writes), doubts=tuple(doubts), recurses=recurses
    )


def _copier(grammar: Grammar) -> Callable[[Sequence[Word]], Effects]:
    """From all operands but the last to the last; those on other machines are not files here."""

    def effects(words: Sequence[Word]) -> Effects:
        operands, found = _given(words, grammar)
        here = [":" not in (w.text or "").partition("/")[0] for w in operands]
        local = [w for w, is_here in zip(operands[:-1], here, strict=False) if is_here]
        makes = tuple(operands[-1:]) if len(operands) > 1 and here[-1] else ()
        return replace(
            found, reads=(*found.reads, *local), makes=makes,
            copies=tuple((source, into) for into in makes for source in local),
        )  # fmt: skip

    return effects


def _zip(words: Sequence[Word]) -> Effects:
    operands, found = _given(words, _ZIP)
    reads = (*found.reads, *operands[1:])
    return replace(found, reads=reads, makes=tuple(operands[:1]), follows=True)


def _split(words: Sequence[Word]) -> Effects:
    operands, found = _given(words, _SPLIT)
    made = operands[1] if len(operands) > 1 else Word("x", "x")
    doubts = list(found.doubts)
    suffixes = [
        item.value.text or ""
        for item in scan(words, _SPLIT)
        if isinstance(item, Option) and item.name == "--additional-suffix" and item.value
    ]
    if (made.text or ".").rpartition("/")[2].startswith(".") or not all(
        _SUFFIX.fullmatch(suffix) for suffix in suffixes
    ):
        doubts.append("files whose names are not known")
    return Effects(reads=tuple(operands[:1]), makes=(made,), doubts=tuple(doubts))


CARRIERS: dict[str, Callable[[Sequence[Word]], Effects]] = {
    "curl": _curl,
    "dd": _dd,
    "rsync": _copier(_RSYNC),
    "scp": _copier(_SCP),
    "zip": _zip,
    "split": _split,
}
