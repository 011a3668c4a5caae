"""Files outside of the folder: read decides on them as bash does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.helpers import failed, hands, plain
from treadle.core.contracts.policy import Allow, Ask, Deny, PermissionRequest, Verdict
from treadle.core.contracts.tool import ToolSpec
from treadle.policy.policy import RulePolicy, build_policy_context
from treadle.policy.ruleset.rules_file import parse_rules
from treadle.tools.builtin import describe_access


async def test_a_file_outside_is_read_if_the_agent_has_a_policy_for_it(
    folder: Path, own_place: Path
) -> None:
    (own_place / "other.txt").write_text("one\ntwo\n")
    (folder / "link").symlink_to(own_place / "other.txt")
    async with hands(folder, read_outside=True) as agent:
        whole, parent, link, process, missing, edit = await agent.do(
            ("read", {"file_path": str(own_place / "other.txt")}),
            ("read", {"file_path": "../other.txt", "offset": 2}),
            ("read", {"file_path": "link"}),
            ("read", {"file_path": "/proc/self/environ"}),
            ("read", {"file_path": "../nothing.txt"}),
            ("edit", {"file_path": "../other.txt", "old_string": "one", "new_string": "1"}),
        )
    assert plain(whole) == "1\tone\n2\ttwo"
    assert plain(parent).startswith("2\ttwo")
    assert "use that path" in failed(link), "a command could have changed the symlink"
    assert "read it with bash" in failed(process)
    assert "does not exist" in failed(missing)
    assert "outside of" in failed(edit)
    async with hands(folder) as agent:
        assert "outside of" in failed(await agent.one("read", file_path="../other.txt"))


async def decide(tool: str, arguments: dict[str, Any], folder: Path, **given: Any) -> Verdict:
    rules = parse_rules(given.pop("rules", {}), root=str(folder), home="/h")
    subject = RulePolicy(build_policy_context(folder, rules), sandboxed=True, **given)
    effect: Any = "pure" if tool == "read" else "irreversible"
    access = describe_access(tool, arguments)
    spec = ToolSpec(tool, "", {}, effect=effect)
    return await subject.decide(PermissionRequest("s", "c", spec, arguments, "", access))


@pytest.mark.parametrize("path", ["/etc/hosts", "/usr/include/stdio.h", "/etc/ssl/private/x.key"])
@pytest.mark.parametrize("mode", ["plan", "ask", "accept-edits", "auto", "bypass"])
@pytest.mark.parametrize("is_ruled", [False, True])
async def test_read_and_cat_get_the_same_answer_outside_of_the_folder(
    folder: Path, path: str, mode: str, is_ruled: bool
) -> None:
    rules = {"allow": ["Read(//etc/**)", "Read(//usr/**)"]} if is_ruled else {}
    options: dict[str, Any] = {"mode": mode, "rules": rules}
    read = await decide("read", {"file_path": path}, folder, **options)
    cat = await decide("bash", {"command": f"cat {path}"}, folder, **options)
    if path.endswith(".key") and mode == "auto":
        assert isinstance(read, Ask), "a secret is asked about: the tool is not in the sandbox"
        return
    assert type(read) is type(cat)
    assert isinstance(read, (Allow, Ask, Deny))
