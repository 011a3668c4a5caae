from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.builtin.helpers import Hands, failed, hands, plain
from tests.workspace.helpers import needs_bubblewrap
from treadle.permissions.findings import PolicyContext
from treadle.permissions.policy import RulePolicy
from treadle.permissions.ruleset.rules_file import parse_rules
from treadle.tools.builtin import builtin_tools
from treadle.tools.builtin.search import ripgrep
from treadle.tools.builtin.session_memory import FindDenied
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions


@pytest.fixture
def tree(folder: Path) -> Path:
    (folder / ".git").mkdir()
    (folder / ".gitignore").write_text("built/\n")
    for name, text in {
        "src/one.py": "import os\n\ndef one():\n    return os.name  # needle\n",
        "src/deep/two.py": "needle = 1\nNEEDLE = 2\n",
        "src/three.ts": "const needle = 3\n",
        "built/four.py": "needle\n",
        ".config/five.py": "needle\n",
        ".git/six.py": "needle\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"pattern": "**/*.py"}, [".config/five.py", "src/deep/two.py", "src/one.py"]),
        ({"pattern": "*.ts"}, ["src/three.ts"]),
        ({"pattern": "src/*.py"}, ["src/one.py"]),
        ({"pattern": "*.py", "path": "src/deep"}, ["src/deep/two.py"]),
        ({"pattern": "deep/*.{py,ts}", "path": "src"}, ["src/deep/two.py"]),
        ({"pattern": "./src/*.ts"}, ["src/three.ts"]),
    ],
)
async def test_files_are_found_by_name(
    tree: Path, arguments: dict[str, str], found: list[str]
) -> None:
    async with hands(tree) as agent:
        item = await agent.one("glob", **arguments)
    assert plain(item).split("\n") == found


async def test_an_absolute_pattern_names_its_folder(tree: Path) -> None:
    async with hands(tree) as agent:
        inside, outside, up, both = await agent.do(
            ("glob", {"pattern": f"{tree}/src/**/*.py"}),
            ("glob", {"pattern": "/etc/*.conf"}),
            ("glob", {"pattern": "../*.py"}),
            ("glob", {"pattern": f"{tree}/*", "path": "src"}),
        )
    assert plain(inside) == "src/deep/two.py\nsrc/one.py"
    assert "outside" in failed(outside)
    assert "may not contain" in failed(up)
    assert "leave out `path`" in failed(both)


async def test_nothing_found_is_no_error_and_much_is_cut(tree: Path) -> None:
    (tree / "many").mkdir()
    for number in range(300):
        (tree / f"many/{number:03}.txt").touch()
    async with hands(tree) as agent:
        none, many = await agent.do(("glob", {"pattern": "*.rs"}), ("glob", {"pattern": "many/*"}))
    assert plain(none) == "No files match *.rs."
    assert many.text.endswith("many/199.txt\n(100 more; narrow the pattern or the path)")


async def test_files_with_a_match_are_named_in_order(tree: Path) -> None:
    async with hands(tree) as agent:
        item = await agent.one("grep", pattern="needle")
    assert plain(item) == ".config/five.py\nsrc/deep/two.py\nsrc/one.py\nsrc/three.ts"
    assert item.display == "4 files"


async def test_lines_with_what_is_around_them(tree: Path) -> None:
    async with hands(tree) as agent:
        lines, around, bare = await agent.do(
            ("grep", {"pattern": "needle", "output_mode": "content", "type": "py", "-i": True}),
            (
                "grep",
                {"pattern": "return", "path": "src/one.py", "output_mode": "content", "-B": 1},
            ),
            ("grep", {"pattern": "def", "glob": "*.py", "output_mode": "content", "-n": "false"}),
        )
    assert plain(lines).split("\n") == [
        ".config/five.py:1:needle",
        "src/deep/two.py:1:needle = 1",
        "src/deep/two.py:2:NEEDLE = 2",
        "src/one.py:4:    return os.name  # needle",
    ]
    assert around.text == "src/one.py-3-def one():\nsrc/one.py:4:    return os.name  # needle"
    assert bare.text == "src/one.py:def one():"


async def test_counting_paging_and_matches_over_lines(tree: Path) -> None:
    async with hands(tree) as agent:
        count, page, several, none = await agent.do(
            ("grep", {"pattern": "needle", "output_mode": "count", "path": "src"}),
            ("grep", {"pattern": "needle", "head_limit": 2, "offset": 1}),
            ("grep", {"pattern": "os\n\ndef", "multiline": True}),
            ("grep", {"pattern": "absent"}),
        )
    assert plain(count) == "src/deep/two.py:1\nsrc/one.py:1\nsrc/three.ts:1"
    assert plain(page) == "src/deep/two.py\nsrc/one.py\n(1 more; continue with offset=3)"
    assert plain(several) == "src/one.py"
    assert plain(none) == "No matches."


async def test_what_is_wrong_with_a_search_is_said(tree: Path) -> None:
    async with hands(tree) as agent:
        regex, kind, place, option = await agent.do(
            ("grep", {"pattern": "un(closed"}),
            ("grep", {"pattern": "x", "type": "klingon"}),
            ("grep", {"pattern": "x", "path": "srk"}),
            ("grep", {"pattern": "--pre=touch", "path": "src"}),
        )
    assert "searched as text" in regex.model_text
    assert "klingon" in failed(kind)
    assert "srk does not exist" in failed(place)
    assert plain(option) == "No matches."
    assert not (tree / "src/touch").exists()


async def test_a_search_runs_no_programs_and_follows_no_links(tree: Path) -> None:
    (tree / "out").symlink_to("/etc")
    (tree / ".ripgreprc").write_text("--follow\n")
    async with hands(tree) as agent:
        item = await agent.one("grep", pattern="root", path=".")
    assert plain(item) == "No matches."


async def test_of_many_lines_the_first_files_are_shown_in_the_order_of_their_lines(
    folder: Path,
) -> None:
    for name in ("b.txt", "a.txt", "a.txt.more", "c.txt"):
        (folder / name).write_text("".join(f"line {n}\n" for n in range(1, 41)))
    (folder / "bin").write_bytes(b"line\n\0")
    asked = {"pattern": "line", "output_mode": "content", "head_limit": 45}
    async with hands(folder) as agent:
        plainly = await agent.one("grep", **asked, glob="*.txt*")
        beside_binary = await agent.one("grep", **asked)
        rest = await agent.one("grep", **asked, glob="*.txt*", offset=45)
    first = [f"a.txt:{n}:line {n}" for n in range(1, 41)]
    lines = plain(plainly).splitlines()
    assert lines[:45] == first + [f"a.txt.more:{n}:line {n}" for n in range(1, 6)]
    assert lines[45:] == ["(115 more; continue with offset=45)"]
    assert plain(beside_binary).splitlines()[:40] == first
    assert plain(rest).startswith("a.txt.more:6:line 6\n")


@pytest.mark.parametrize("pattern", ["**/*", "*", "**", "**/*.py", "*.py", "src/**", "{src,gen}/*"])
async def test_ignored_files_and_those_of_git_are_not_found_by_any_pattern(
    tree: Path, pattern: str
) -> None:
    (tree / ".gitignore").write_text("built/\nnode_modules/\nsecret.py\n*.gen.py\n")
    (tree / "gen").mkdir()
    for name in ("node_modules/m/x.py", "secret.py", "src/a.gen.py", "gen/b.gen.py"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("needle\n")
    async with hands(tree) as agent:
        glob = plain(await agent.one("glob", pattern=pattern))
        for mode in ("files_with_matches", "content", "count"):
            item = await agent.one("grep", pattern="needle", glob=pattern, output_mode=mode)
            names = {line.partition(":")[0] for line in plain(item).splitlines()}
            assert names <= {".config/five.py", "src/deep/two.py", "src/one.py", "src/three.ts"}
            assert names & {"src/one.py"}
    own = {".config/five.py", ".gitignore", "src/deep/two.py", "src/one.py", "src/three.ts"}
    assert {"src/one.py"} <= set(glob.splitlines()) <= own


async def test_an_ignored_folder_can_be_searched_when_it_is_named(tree: Path) -> None:
    async with hands(tree) as agent:
        files = await agent.one("glob", pattern="*.py", path="built")
        lines = await agent.one("grep", pattern="needle", path="built", glob="*.py")
    assert plain(files) == plain(lines) == "built/four.py"


async def test_a_match_far_out_in_a_long_line_is_shown(folder: Path) -> None:
    (folder / "long.js").write_text("a" * 2_000 + "ä needle" + "b" * 2_000 + "\n")
    async with hands(folder) as agent:
        item = await agent.one("grep", pattern="needle", output_mode="content")
    [line] = plain(item).splitlines()
    assert line.startswith("long.js:1:[1903 bytes] ...aaa")
    assert "ä needlebbb" in line
    assert line.endswith("bbb... [1606 more bytes]")


async def test_the_number_of_further_matches_is_not_understated(folder: Path) -> None:
    (folder / "a.txt").write_text("needle\n" * 1_220)
    async with hands(folder) as agent:
        item = await agent.one("grep", pattern="needle", output_mode="content")
        last = await agent.one("grep", pattern="needle", output_mode="content", offset=1_000)
    assert plain(item).endswith("\n(more; continue with offset=250)")
    assert plain(last).endswith("a.txt:1220:needle")


async def test_a_search_says_what_could_not_be_searched(
    folder: Path, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.txt").write_text("needle\n")
    program = own_place / "rg"
    problem = "rg: ./no: Permission denied"
    program.write_text(f"#!/bin/sh\nprintf './a.txt\\000'\necho '{problem}' >&2\nexit 2\n")
    program.chmod(0o755)
    monkeypatch.setattr(ripgrep, "find_ripgrep", lambda: str(program))
    async with hands(folder) as agent:
        found = await agent.one("grep", pattern="needle")
        files = await agent.one("glob", pattern="*.txt")
    warning = "(incomplete; not searched: ./no: Permission denied)"
    assert plain(found) == plain(files) == f"a.txt\n{warning}"


@needs_bubblewrap
async def test_search_works_where_a_sandbox_is_required(tree: Path) -> None:
    workspace = await LocalWorkspace.open(tree, WorkspaceOptions(sandbox="required"))
    try:
        agent = Hands(workspace, builtin_tools(workspace))
        found, files = await agent.do(
            ("grep", {"pattern": "needle", "path": "src", "output_mode": "count"}),
            ("glob", {"pattern": "src/*.py"}),
        )
    finally:
        await workspace.aclose()
    assert "src/one.py:1" in plain(found)
    assert plain(files) == "src/one.py"


async def test_a_search_leaves_out_denied_files_and_says_so(tree: Path) -> None:
    (tree / ".env").write_text("needle=secret\n")
    (tree / "src/k[1].pem").write_text("needle\n")
    (tree / "alias.txt").hardlink_to(tree / ".env")
    rules = parse_rules({"deny": ["Read(.env)", "Read(*.pem)"]}, root=str(tree), home="/h")
    policy = RulePolicy(PolicyContext(str(tree), "/h", rules, tools_skip_denied=True))

    async def get_find_denied() -> FindDenied | None:
        return policy.find_denied

    async with hands(tree, get_find_denied=get_find_denied, agent={"policy": policy}) as agent:
        found, named, none = await agent.do(
            ("grep", {"pattern": "needle"}),
            ("grep", {"pattern": "needle", "glob": ".env"}),
            ("grep", {"pattern": "needle", "path": "src/deep"}),
        )
    note = "(not searched, because a rule denies it or it may contain secrets: "
    assert plain(found).split("\n") == [
        ".config/five.py", "src/deep/two.py", "src/one.py", "src/three.ts",
        note + ".env, alias.txt, src/k[1].pem)",
    ]  # fmt: skip
    assert plain(named) == f"No matches.\n{note}.env)"
    assert plain(none) == "src/deep/two.py"


async def test_whether_a_denied_file_matches_is_not_told(tree: Path) -> None:
    (tree / ".env").write_text("KEY=hunter2\n")

    async def get_find_denied() -> FindDenied:
        return lambda paths: [path for path in paths if path.endswith("/.env")]

    async with hands(tree, get_find_denied=get_find_denied) as agent:
        right, wrong = await agent.do(
            ("grep", {"pattern": "hunter2", "output_mode": "count"}),
            ("grep", {"pattern": "hunter3", "output_mode": "count"}),
        )
    assert plain(right) == plain(wrong)
