"""The chain of hashes in a log: the last entry of each write has the hash of all that it wrote.

    {"kind":"usage","model":"…","h":"3f1c…","of":3}      h = hash(the h before, 3 entries with their
                                                         numbers, times and contents in blobs)

One hash a write costs next to nothing. A reader that does not know `h` ignores it. Not covered, and
counted as unsigned: entries of earlier versions, and those of a write that a crash cut off. A fork
begins with the hash of its parent (ForkPoint). A program that can write the file can write a new
chain: only a signature of a later hash shows that. Used by the stores and by audit.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

MAX_SEAL_BYTES = 80
_HASH_BYTES = 20
SEAL_PATTERN = rb',"h":"([0-9a-f]{40})","of":(\d{1,9})'
_COUNT_FIELD, _MAX_COUNT_BYTES = b'"of":', 18
_SEAL = re.compile(rb"%b\}\n?\Z" % SEAL_PATTERN)


class ChainLink(msgspec.Struct, gc=False):
    """An entry as a store has it; `content` is what it has in a blob, `is_lost`: that is gone."""

    seq: int
    time: float
    body: bytes
    content: bytes | None = None
    is_lost: bool = False


class ChainReport(msgspec.Struct, frozen=True):
    """How far a log is as it was written: `problem` is the first write that does not fit, `heads`
    are the hashes before it, by the numbers of their entries."""

    entries: int = 0
    unsigned: int = 0
    heads: dict[int, str] = {}
    problem: str = ""

    @property
    def head(self) -> str:
        return next(reversed(self.heads.values()), "")

    @property
    def state(self) -> str:
        if self.problem:
            return "broken"
        return "intact" if self.heads else "unsigned"


def seal(previous: bytes, links: Sequence[ChainLink]) -> bytes:
    """Write the hash of these entries into the last one; returns it."""
    found = _hash_links(previous, links)
    last = links[-1]
    last.body = b'%b,"h":"%b","of":%d}' % (last.body[:-1], found, len(links))
    return found


def find_hash(body: bytes) -> bytes:
    """The hash in an entry, or in its end; b"" if it has none."""
    if body.find(_COUNT_FIELD, -_MAX_COUNT_BYTES) < 0:
        return b""  # most entries: faster than the pattern, and than `in`, which raises inside
    match = _SEAL.search(body, max(0, len(body) - MAX_SEAL_BYTES))
    return b"" if match is None else match.group(1)


def verify_chain(links: Iterable[ChainLink], previous: bytes = b"") -> ChainReport:
    """Follow the chain of a log that begins with the hash `previous`."""
    entries = unsigned = 0
    heads: dict[int, str] = {}
    open_links: list[ChainLink] = []
    for link in links:
        open_links.append(link)
        match = _SEAL.search(link.body, max(0, len(link.body) - MAX_SEAL_BYTES))
        if match is None:
            continue
        link.body = link.body[: match.start()] + b"}"
        first = len(open_links) - int(match.group(2))
        found = _hash_links(previous, open_links[max(first, 0) :])
        if first < 0 or found != match.group(1):
            lost = [one.seq for one in open_links if one.is_lost]
            problem = (
                f"of the entries {open_links[max(first, 0)].seq} to {link.seq} one was changed"
            )
            problem = f"the content of entry {lost[0]} is missing" if lost else problem
            return ChainReport(entries, unsigned, heads, problem)
        entries, unsigned, previous = entries + len(open_links), unsigned + first, found
        heads[link.seq] = found.decode()
        open_links.clear()
    return ChainReport(entries + len(open_links), unsigned + len(open_links), heads)


def _hash_links(previous: bytes, links: Sequence[ChainLink]) -> bytes:
    """In one piece: then other threads run meanwhile."""
    pieces = [previous]
    for one in links:
        content = blake2b(one.content).digest() if one.content is not None else b""
        pieces += (b"\n%d %.3f %b " % (one.seq, one.time, content), one.body)
    return blake2b(b"".join(pieces), digest_size=_HASH_BYTES).hexdigest().encode()
