"""Keys of the user's own: they work everywhere, the old ones do nothing, the help shows them."""

from __future__ import annotations

from tests.apps.tui.harness import running_app

KEYS: dict[str, object] = {
    "search": "ctrl+s",
    "todos": ["f2", "alt+t"],
    "copy": "off",
    "history": "f3",
    "mode": "f4",
}


async def test_the_new_key_works_and_the_old_one_does_nothing(monkeypatch):
    async with running_app(monkeypatch, keys=KEYS) as on:
        await on.press("f4")
        await on.sees("accept-edits")
        await on.press("shift+tab")
        await on.press("f2")
        await on.sees("there is no todo list")
        assert on.app.session.permissions.mode == "accept-edits"
        await on.press("f3")
        await on.sees("search earlier messages")
        await on.press("escape")
        await on.press("ctrl+f", "ctrl+y")
        await on.type("x")
        assert on.app.prompt.text == "x"
        assert not on.app.dialogs.is_open
        await on.press("ctrl+s")
        await on.until(lambda: on.app.dialogs.is_open)


async def test_the_help_shows_the_keys_of_the_user(monkeypatch):
    async with running_app(monkeypatch, keys=KEYS, size=(120, 80)) as on:
        await on.send("/help")
        await on.sees("next permission mode")
        lines = {line.strip() for line in on.screen().splitlines()}
        assert any(line.startswith("f4 ") and "next permission mode" in line for line in lines)
        assert any(line.startswith("f2 alt+t") and "todo list" in line for line in lines)
        assert any(line.startswith("ctrl+s") and "search" in line for line in lines)
        assert not any("copy the last reply" in line for line in lines)


async def test_without_a_table_all_is_as_it_was(monkeypatch):
    async with running_app(monkeypatch) as on:
        await on.press("ctrl+t")
        await on.sees("there is no todo list")
        await on.type("?")
