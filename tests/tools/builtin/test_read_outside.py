"""Files outside of the folder: read decides on them as bash does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.helpers import failed, hands, plain
from treadle.core.contracts.policy import Allow, Ask, Deny, PermissionRequest, Verdict
from treadle.core.contracts.tool import ToolSpec
from treadle.permissions.policy import RulePolicy, build_policy_context
from treadle.permissions.ruleset.rules_file import parse_rules
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


async def test_searches_outside_work_as_reading_does(folder: Path, own_place: Path) -> None:
    other = own_place / "other"
    (other / "sub").mkdir(parents=True)
    (other / "sub" / "a.py").write_text("KEY = 1\n")
    (own_place / "secret.py").write_text("KEY = 2\n")
    (other / "leak.py").symlink_to(own_place / "secret.py")
    (folder / "link").symlink_to(other)
    grep = ("grep", {"pattern": "KEY", "path": str(other), "output_mode": "content"})
    calls = [
        ("glob", {"pattern": f"{other}/**/a.py"}),
        ("ls", {"path": "../other"}),
        ("grep", {"pattern": "KEY", "path": f"{other}/sub/a.py"}),
        ("grep", {"pattern": "KEY", "path": "link"}),
        ("grep", {"pattern": "KEY", "path": "/proc/self"}),
        ("glob", {"pattern": "*", "path": "../nothing"}),
        ("ls", {"path": "../nothing"}),
    ]
    async with hands(folder, read_outside=True) as agent:
        found, named, listed, one, link, process, *missing = await agent.do(grep, *calls)
    assert plain(found) == f"{other}/sub/a.py:1:KEY = 1"
    assert plain(named) == f"{other}/sub/a.py"
    assert plain(listed) == "leak.py\nsub/"
    assert plain(one) == f"{other}/sub/a.py"
    assert "use that path" in failed(link), "a command could have changed the symlink"
    assert "not a file on disk" in failed(process)
    assert ["does not exist" in failed(missing[0]), "no folder" in failed(missing[1])] == [True] * 2
    async with hands(folder) as agent:
        for result in await agent.do(grep, *calls[:2]):
            assert "outside of" in failed(result)


async def decide(tool: str, arguments: dict[str, Any], folder: Path, **given: Any) -> Verdict:
    rules = parse_rules(given.pop("rules", {}), root=str(folder), home="/h")
    subject = RulePolicy(build_policy_context(folder, rules), sandboxed=True, **given)
    effect: Any = "irreversible" if tool == "bash" else "pure"
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
    if mode == "auto" and (path.endswith(".key") or not is_ruled):
        assert isinstance(read, Ask), "the tool is not in the sandbox"
        return
    assert type(read) is type(cat)
    assert isinstance(read, (Allow, Ask, Deny))


@pytest.mark.parametrize("mode", ["plan", "ask", "accept-edits", "auto", "bypass"])
@pytest.mark.parametrize("is_ruled", [False, True])
@pytest.mark.parametrize(
    ("tool", "arguments", "command"),
    [
        ("grep", {"pattern": "x", "path": "/usr/include"}, "grep -r x /usr/include"),
        ("glob", {"pattern": "*.h", "path": "/usr/include"}, "find /usr/include"),
        ("ls", {"path": "/usr/include"}, "ls /usr/include"),
        ("grep", {"pattern": "x", "path": "/home/other"}, "grep -r x /home/other"),
    ],
)
async def test_searches_and_commands_get_the_same_answer_outside_of_the_folder(
    folder: Path, mode: str, is_ruled: bool, tool: str, arguments: dict[str, Any], command: str
) -> None:
    rules = {"allow": ["Read(//usr/**)", "Read(//home/other/**)"]} if is_ruled else {}
    options: dict[str, Any] = {"mode": mode, "rules": rules}
    search = await decide(tool, arguments, folder, **options)
    shell = await decide("bash", {"command": command}, folder, **options)
    if mode == "auto" and not is_ruled:
        assert isinstance(search, Ask), "the tool is not in the sandbox"
        return
    assert type(search) is type(shell)
