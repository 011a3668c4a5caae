"""The last items of a long session, read from the end of its log: enough to show it at once.

A preview only: the session itself is loaded from the beginning.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from treadle.core.transcript.entries import ItemAdded, Rewound
from treadle.core.transcript.entry_json import decode_entry
from treadle.core.transcript.items import Item
from treadle.sessions.log.reader import list_segments
from treadle.sessions.log.records import parse_record
from treadle.sessions.log.state_loader import load_content, mark_lost_content

LONG_BYTES = 2 << 20  # a shorter log is loaded as fast
END_BYTES = 128 << 10


def read_last_items(session_dir: Path) -> list[Item]:
    """The items at the end of a long log; none if it is short, or if the end was rewound."""
    segments = list_segments(session_dir)
    if not segments or segments[-1].stat().st_size < LONG_BYTES:
        return []
    with segments[-1].open("rb") as file:
        file.seek(-END_BYTES, os.SEEK_END)
        lines = file.read().split(b"\n")[1:-1]  # the first one and the last one may be cut
    items: list[Item] = []
    for line in lines:
        record = parse_record(line)
        if record is None:
            continue
        try:
            entry = decode_entry(record.raw)
        except msgspec.DecodeError:
            continue  # a kind of a newer version
        if isinstance(entry, Rewound):
            return []
        if isinstance(entry, ItemAdded):
            entry = load_content(entry, record.blob, session_dir) or mark_lost_content(
                entry, record.blob
            )
            assert isinstance(entry, ItemAdded), "its content does not change its kind"
            items.append(entry.item)
    return items
