"""Eyes for code: the model finds and renames by meaning, and reads what its edits made worse.

Nothing is configured: the language servers that are installed are found. Here it is pyright, which
`pip install "pyright[nodejs]"` installs.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import treadle
from treadle import ToolFinished
from treadle.models import Say, Scripted

os.environ["PATH"] = f"{sys.prefix}/bin:{os.environ['PATH']}"  # pyright beside this Python

FILES = {
    "pyproject.toml": "",
    "shop.py": "def price(count: int) -> int:\n    return count * 3\n",
    "cart.py": "from shop import price\n\nprint(price(2))\n",
}
# What a model would do. Leave out `model=` below to let a real one work.
RENAME = {"file_path": "shop.py", "symbol": "price", "new_name": "cost", "files": ["cart.py"]}
FIND = {"action": "references", "file_path": "shop.py", "symbol": "price"}
EDIT = {"file_path": "shop.py", "old_string": "count: int", "new_string": "count: int, tax: int"}
MODEL = Scripted(
    [
        Say("Who uses it?", calls=[("find_symbol", FIND), ("read", {"file_path": "cart.py"})]),
        Say("I rename it.", calls=[("rename_symbol", RENAME)]),
        Say("I add the tax.", calls=[("edit", EDIT)]),
        "The call in cart.py has no tax yet.",
        "I saw it.",
    ]
)


async def main() -> None:
    folder = Path(tempfile.mkdtemp())
    for name, text in FILES.items():
        (folder / name).write_text(text)
    async with treadle.coding_agent(
        folder,
        model=MODEL,
        permission_mode="accept-edits",
        trust=True,  # a language server may run code of the folder
        sandbox="off",  # so that the example runs anywhere; leave it out at home
    ) as agent:
        async with agent.stream("Rename price to cost, and add a tax.") as events:
            async for event in events:
                if isinstance(event, ToolFinished):
                    print(event.result)
    print((folder / "cart.py").read_text(), end="")


asyncio.run(main())
