"""Tools as the tests describe them to a model, and files as they find them."""

from __future__ import annotations

from pathlib import Path

from treadle.core.contracts.tool import ToolSpec


def write(name: str, content: str | bytes) -> None:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


def content(name: str) -> str:
    return Path(name).read_text()


def is_there(place: str | Path) -> bool:
    return Path(place).exists()


def spec(name: str, *, optional: tuple[str, ...] = (), **kinds: str) -> ToolSpec:
    properties = {field: {"type": kind} for field, kind in kinds.items()}
    required = [field for field in kinds if field not in optional]
    schema = {"type": "object", "properties": properties, "required": required}
    return ToolSpec(name, f"The tool {name}. It has a long description.", schema)


CODING = (
    spec("Read", file_path="string", offset="integer", optional=("offset",)),
    spec("Write", file_path="string", content="string"),
    spec("Edit", file_path="string", old_string="string", new_string="string"),
    spec("Bash", command="string", timeout="integer", optional=("timeout",)),
    spec("Glob", pattern="string", path="string", optional=("path",)),
    spec("Grep", pattern="string", path="string", optional=("path",)),
    spec("WebFetch", url="string", prompt="string"),
    spec("TodoWrite", todos="array"),
)

ADD = spec("add", a="integer", b="integer")
