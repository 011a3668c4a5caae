"""What the model reads after an edit, and how it finds and renames code: real language servers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.node_programs import PACKAGES, find_node, find_program
from tests.patience import until
from tests.workspace.helpers import needs_bubblewrap
from treadle.core.steps import PendingApproval
from treadle.core.transcript.items import NoticeItem, ToolResultItem
from treadle.models import Say, Scripted
from treadle.tools.language_servers import edit_diagnostics

SHOP = "old: int = ''\n\ndef price(count: int) -> int:\n    return count * 3\n"
CART = "from shop import price\n\nprint(price(2))\n"
TS_SHOP = "export function price(count: number): number {\n  return count * 3;\n}\n"
TS_CART = 'import { price } from "./shop";\n\nconsole.log(price(2));\n'


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edit_diagnostics, "WAIT_SECONDS", 120.0)


def put_on_path(monkeypatch: pytest.MonkeyPatch, *folders: str) -> None:
    path = os.pathsep.join([*folders, "/usr/bin", "/bin"])
    monkeypatch.setenv("PATH", path)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in Python; pyright is installed."""
    put_on_path(monkeypatch, f"{sys.prefix}/bin")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "cart.py").write_text(CART)
    return tmp_path


def edit(name: str, old: str, new: str) -> Say:
    return Say(calls=[("edit", {"file_path": name, "old_string": old, "new_string": new})])


def read(*names: str) -> Say:
    return Say(calls=[("read", {"file_path": name}) for name in names])


def results(result: treadle.Result[Any]) -> list[str]:
    return [item.text for item in result.transcript if isinstance(item, ToolResultItem)]


async def warm_up(agent: Any, file: Path) -> None:
    """Wait for the server of a file, which an edit has started."""
    server = agent.parts.code_servers.get_servers().find_server(file)
    await until(lambda: server.is_warm, "the language server")


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["off", pytest.param("required", marks=needs_bubblewrap)])
async def test_an_edit_of_python_tells_what_it_made_worse(shop: Path, sandbox: str) -> None:
    model = Scripted(
        [
            read("shop.py", "cart.py"),
            edit("shop.py", "count * 3", "count * 4"),
            "The price is higher.",
            edit("shop.py", "count * 4", "coun * 4"),
            edit("shop.py", "coun * 4", "count * 4"),
            edit("shop.py", "count: int)", "count: int, tax: int)"),
            "Prices have a tax.",
        ]
    )
    options: dict[str, Any] = {"permission_mode": "accept-edits", "sandbox": sandbox}
    async with treadle.coding_agent(shop, model=model, trust=True, **options) as agent:
        cold = await agent.run("Raise the price.")
        await warm_up(agent, shop / "shop.py")
        result = await agent.run("Add a tax.", history=cold.transcript)
    first, typo, mended, signature = results(result)[-4:]
    assert "pyright" not in first, "a server that starts is not waited for"
    assert typo.endswith(
        "\n\n[pyright: 1 new problem]\n"
        'shop.py:4:12 error: "coun" is not defined (reportUndefinedVariable)'
    )
    assert "pyright" not in mended
    assert "cart.py:3:7 error: Argument missing for parameter" in signature
    assert "old: int" not in signature.partition("[pyright")[2]


@pytest.mark.slow
async def test_what_a_server_finds_late_ends_no_turn_unseen(shop: Path) -> None:
    """The last reply of the turn waits until the server has its report."""
    servers: list[Any] = []

    async def finish(request: Any) -> Say:
        await until(lambda: servers[0]()._tasks == {}, "the report")
        return Say("Done.")

    model = Scripted([read("shop.py"), edit("shop.py", "count * 3", "coun * 3"), finish, "Sorry."])
    options: dict[str, Any] = {"permission_mode": "accept-edits", "sandbox": "off"}
    async with treadle.coding_agent(shop, model=model, trust=True, **options) as agent:
        parts = agent.parts
        assert parts is not None
        servers.append(lambda: parts.code_servers._diagnostics)
        result = await agent.run("Change it.")
    notices = [item.text for item in result.transcript if isinstance(item, NoticeItem)]
    assert '"coun" is not defined' in notices[-1]
    assert result.text == "Sorry."


@pytest.mark.slow
async def test_the_model_finds_and_renames_by_meaning(shop: Path) -> None:
    def ask(action: str, **more: Any) -> tuple[str, dict[str, Any]]:
        return "find_symbol", {"action": action, **more}

    rename = {"file_path": "shop.py", "symbol": "price", "new_name": "cost"}
    model = Scripted(
        [
            Say(
                calls=[
                    ask("references", file_path="shop.py", symbol="price"),
                    ask("definition", file_path="cart.py", symbol="price", line=3),
                    ask("symbols", file_path="shop.py"),
                    ask("symbols", symbol="price"),
                    ask("definition", file_path="cart.py", symbol="nothing"),
                ]
            ),
            Say(calls=[("rename_symbol", rename)]),
            Say(calls=[("rename_symbol", {**rename, "files": ["cart.py"]})]),
            "done",
        ]
    )
    options: dict[str, Any] = {"permission_mode": "accept-edits", "sandbox": "off"}
    async with treadle.coding_agent(shop, model=model, trust=True, **options) as agent:
        result = await agent.run("Rename it.")
    references, definition, outline, found, missing, refused, renamed = results(result)
    assert sorted(references.splitlines()) == [
        "cart.py:1: from shop import price",
        "cart.py:3: print(price(2))",
        "shop.py:3: def price(count: int) -> int:",
    ]
    assert definition == "shop.py:3: def price(count: int) -> int:"
    assert outline.splitlines() == ["1: variable old", "3: function price"]
    assert found == "shop.py:3: function price"
    assert "`nothing` is not in cart.py" in missing
    assert 'nothing was changed: the rename also changes cart.py. Call it again with files: ["cart.py"]' in refused  # fmt: skip  # noqa: E501
    assert renamed.startswith("Renamed price to cost in ")
    assert (shop / "cart.py").read_text() == "from shop import cost\n\nprint(cost(2))\n"
    assert "def cost(count" in (shop / "shop.py").read_text()


@pytest.mark.slow
async def test_a_rename_needs_the_permission_of_every_file(shop: Path) -> None:
    rename = {"file_path": "shop.py", "symbol": "price", "new_name": "cost", "files": ["cart.py"]}
    asked: list[PendingApproval] = []

    async def approve(call: PendingApproval) -> bool:
        asked.append(call)
        return True

    model = Scripted([Say(calls=[("rename_symbol", rename)]), "done"])
    async with treadle.coding_agent(
        shop, model=model, trust=True, sandbox="off", approve=approve
    ) as agent:
        await agent.run("Rename it.")
    (call,) = asked
    assert {file.path for file in call.access.files} == {"shop.py", "cart.py"}
    assert call.preview is not None
    assert "+from shop import cost" in call.preview.text
    denying = Scripted([Say(calls=[("rename_symbol", {**rename, "symbol": "cost"})]), "done"])
    rules = shop / ".treadle"
    rules.mkdir()
    (rules / "settings.json").write_text('{"permissions": {"deny": ["Edit(cart.py)"]}}')
    async with treadle.coding_agent(
        shop, model=denying, trust=True, sandbox="off", permission_mode="accept-edits"
    ) as agent:
        result = await agent.run("Rename it.")
    assert results(result)[-1].startswith("denied:")


@pytest.mark.slow
@pytest.mark.parametrize("server", ["typescript-language-server", "tsc"])
async def test_an_edit_of_typescript_tells_what_it_made_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    """By the programs in node_modules/.bin, with the compiler that each needs."""
    script = {"tsc": "typescript/bin/tsc"}.get(server, f"{server}/lib/cli.mjs")
    find_program(script)
    put_on_path(monkeypatch, str(Path(find_node()).parent))
    compiler = {"tsc": "typescript"}.get(server, "typescript-5")
    programs = tmp_path / "node_modules" / ".bin"
    programs.mkdir(parents=True)
    (programs / server).symlink_to(PACKAGES / script)
    (tmp_path / "node_modules" / "typescript").symlink_to(PACKAGES / compiler)
    (tmp_path / "tsconfig.json").write_text('{"compilerOptions": {"strict": true}}')
    (tmp_path / "shop.ts").write_text(TS_SHOP)
    (tmp_path / "cart.ts").write_text(TS_CART)
    servers: list[Any] = []

    async def finish(request: Any) -> Say:
        if server != "tsc":
            files = servers[0]._files.values()
            await until(lambda: any("Expected 2" in str(one.diagnostics) for one in files), "cart")
        return Say("done")

    model = Scripted(
        [
            read("shop.ts", "cart.ts"),
            edit("shop.ts", "count * 3", "count * 4"),
            "ok",
            edit("shop.ts", "count * 4", "coun * 4"),
            edit("shop.ts", "(count: number)", "(count: number, tax: number)"),
            Say(
                calls=[
                    (
                        "find_symbol",
                        {"action": "references", "file_path": "shop.ts", "symbol": "price"},
                    )
                ]
            ),
            finish,
            "done",
            "done",
        ]
    )
    options: dict[str, Any] = {"permission_mode": "accept-edits", "sandbox": "off"}
    async with treadle.coding_agent(tmp_path, model=model, trust=True, **options) as agent:
        cold = await agent.run("Raise the price.")
        await warm_up(agent, tmp_path / "shop.ts")
        assert agent.parts is not None
        servers.append(agent.parts.code_servers.get_servers().find_server(tmp_path / "shop.ts"))
        result = await agent.run("Break it.", history=cold.transcript)
    typo, signature, references = results(result)[-3:]
    notices = [item.text for item in result.transcript if isinstance(item, NoticeItem)]
    # What the server publishes late is told with the next edit, or at the end.
    assert f"[{server}: " in typo + signature
    assert "shop.ts:2:10 error: Cannot find name 'coun'" in typo + signature
    assert "cart.ts:3:13 error: Expected 2 arguments, but got 1." in "".join([signature, *notices])
    assert "cart.ts:3: console.log(price(2));" in references
