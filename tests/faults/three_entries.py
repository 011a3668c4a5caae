"""Three entries, each flushed by itself: what strace injects its faults into.

Prints `fine`, or the name of the error that the journal raised.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from treadle.core.errors import StoreError
from treadle.core.transcript.content import Text
from treadle.core.transcript.entries import ItemAdded
from treadle.core.transcript.items import UserItem
from treadle.sessions import Journal


async def main(place: Path) -> str:
    journal = Journal.create(place)
    try:
        for number in range(3):
            journal.append(ItemAdded(UserItem((Text(str(number)),))))
            await journal.flush()
    except StoreError as error:
        return type(error).__name__
    await journal.aclose()
    return "fine"


if __name__ == "__main__":
    print(asyncio.run(main(Path(sys.argv[1]))))
