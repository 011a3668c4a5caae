"""Every program of examples/ fits a screen, ends by itself, and shows what its docstring says."""

from __future__ import annotations

import ast
import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
EXAMPLES = sorted([*FOLDER.glob("*.py"), *FOLDER.glob("products/*.py")])
MAX_LINES = 80

SHOWN = {
    "approvals": "the model reads: denied: we do not know this account",
    "audit_and_undo": "tickets: {}\nthe log is intact",
    "budget": "spent 0.14 of 0.20 USD",
    "coding_agent": "I was not allowed to delete the file.",
    "chat_server": "One moment. It is booked.",
    "children": "Both pages are translated.\nIt has two lines.",
    "code_mode": "web.log 1 401\tERROR disk full\ndenied: keep the logs",
    "commands": "turn 2 broke it (3 checks): Rename it\n    changed shop.py",
    "compaction": "summary: So far: a river runs to the sea",
    "crash": "payments: 1",
    "evals": "worse   Graz: passed 100% before, 0% now",
    "fleet_swe_bench": "acme__double-1 did not pass: check_failed\npassed: 1 of 2",
    "hooks": "It runs on staging.",
    "language_server": "cart.py:3: print(price(2))",
    "images": "the model is shown: Image (image/png, 73 bytes)",
    "memory": "before you accept it, it is read: False",
    "quickstart": "2 + 3 = 5 (end_turn, tool rounds: 1)",
    "batches": "2 batches with [3, 3] requests",
    "retrieval": "Bicycles are free on the ferry, dogs pay half.\n  The ferry to the island",
    "record_replay": 'system was "Be brief.", is "Be polite."',
    "streaming": "Let me look. [weather: Graz] -> Graz: sunny, 24 degrees",
    "structured_output": "Ada orders 2 x lamp",
    "approval_of_a_week": "[order: item=chairs, count=200]\n200 chairs are on their way.",
    "background_job": "SIGKILL\njob-1 The letter is sent.\nletters: ['ada@example.org']",
    "mcp_consumer": "asked: [mcp__notes__find: ficus]\nThe note about ficus: water it on Mondays.",
    "pipeline": "500 labels, 0.10 USD, within the budget: True\ngood: 250",
    "rag": "25 days. ['leave'] after 3 requests",
    "research": "Tea grows in Assam. Coffee grows in Ethiopia. 2 sources",
    "flask_chat": "waits for you: [pay: 12]\n> yes \n< Paid.",
    "a2a_service": "TASK_STATE_COMPLETED It is paid.",
    "agui_service": "TEXT_MESSAGE_CONTENT It is paid.",
    "sse_service": "the other replica sees: [pay: 12]\nTrue True",
    "support_bot": "< Two or three days.\norders left: {8: 99.0}",
    "tools": "result: Ada has row 7, seat 1",
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
async def test_it_ends_by_itself_shows_its_point_and_leaves_nothing(example: Path):
    command = [sys.executable, "-P", str(example)]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    assert SHOWN[example.stem] in out.decode()
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_it_needs_no_package_beyond_the_base_unless_its_text_says_what_to_install(example: Path):
    tree = ast.parse(example.read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else list_names(node))
    }
    if imported - sys.stdlib_module_names - {"treadle", "msgspec"}:
        assert "pip install" in (ast.get_docstring(tree) or "")


def count_lines(source: str) -> int:
    """Lines of code above the part that plays the model."""
    source = source.partition("# --- the show")[0]
    texts = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    with_texts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, texts)]
    docstrings = [node.body[0] for node in with_texts if ast.get_docstring(node) is not None]
    left_out = {line for one in docstrings for line in range(one.lineno, (one.end_lineno or 0) + 1)}
    lines = [line for number, line in enumerate(source.splitlines(), 1) if number not in left_out]
    not_code = ("#", "from __future__", "from treadle.models import Say, Scripted")
    return sum(bool(line.strip()) and not line.strip().startswith(not_code) for line in lines)


PRODUCTS = [one for one in EXAMPLES if one.parent.name == "products" or one.stem == "evals"]


@pytest.mark.parametrize("example", PRODUCTS, ids=lambda example: example.stem)
def test_the_page_for_newcomers_has_its_number_of_lines(example: Path):
    page = (ROOT / "docs/coming-from.md").read_text()
    assert f"](../{example.relative_to(ROOT)}) | {count_lines(example.read_text())} |" in page


def list_names(node: ast.Import) -> list[str]:
    return [alias.name for alias in node.names]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_it_fits_a_screen_and_is_listed_on_their_page(example: Path):
    source = example.read_text()
    assert ast.get_docstring(ast.parse(source))
    assert len(source.splitlines()) <= MAX_LINES
    assert f"{example.relative_to(ROOT)}" in (ROOT / "docs/examples.md").read_text()
