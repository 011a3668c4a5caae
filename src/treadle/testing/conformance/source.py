"""The promises of a tool source (core/contracts/source.py), as checks."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from treadle.core.contracts.source import ToolSource


async def check_source(make: Callable[[], ToolSource]) -> None:
    """Raise AssertionError at the first broken promise."""
    source = make()
    assert source.name, "a source has a name"
    await source.open()
    try:
        tools = source.tools()
        assert source.tools() is tools, "while nothing changed, tools() returns the same object"
        assert isinstance(source.instructions(), str), "instructions() is a text, maybe empty"
        names = [tool.spec.name for tool in tools]
        assert len(names) == len(set(names)), f"two tools have one name: {names}"
        for tool in tools:
            spec = tool.spec
            assert spec.name.replace("_", "").replace("-", "").isalnum(), (
                f"{spec.name!r}: providers accept only letters, digits, _ and -"
            )
            assert len(spec.name) <= 64, f"{spec.name}: providers accept names up to 64 characters"
            assert spec.schema.get("type") == "object", f"{spec.name}: arguments are an object"
            msgspec.json.encode(spec.schema)
            assert spec.effect in ("pure", "verifiable", "irreversible"), (
                f"{spec.name}: {spec.effect!r} is not an effect class"
            )
            required = spec.schema.get("required") or []
            if required:
                assert tool.check({}) is not None, f"{spec.name}: missing arguments are a problem"
            assert isinstance(tool.summary({}), str), f"{spec.name}: a summary never fails"
    finally:
        await source.aclose()
    await source.aclose()  # closing twice is allowed
