"""The first screen of a session: what applies here, sessions to continue, things to try."""

from tests.apps.tui.harness import running_app, scripted, write_file
from treadle.apps.conversation.first_screen import INIT_IDEA, choose_ideas


def test_what_to_try_depends_on_the_folder():
    tests, review = "run the tests and fix what fails", "review my changes since the last commit"
    assert choose_ideas([".git", "tests", "pyproject.toml"]) == (tests, review, INIT_IDEA)
    assert choose_ideas([".git", "tests", "src", "AGENTS.md"])[:2] == (tests, review)
    assert INIT_IDEA not in choose_ideas([".git", "tests", "src", "AGENTS.md"])
    assert choose_ideas(["letter.txt"])[0] == "summarize the files of this folder"
    for code in (["cart.py"], [".git", "cart.py", "README.md"]):
        assert not [idea for idea in choose_ideas(code) if "files" in idea]
    for names in ([], [".cache"], ["a.txt"], [".git", "README.md"]):
        assert len(choose_ideas(names)) == 3


async def test_it_shows_what_applies_until_the_first_message(monkeypatch):
    write_file("AGENTS.md", "Be brief.")
    async with running_app(monkeypatch) as on:
        await on.sees("sandbox  off")
        screen = on.screen()
        assert "trust    trusted, reads AGENTS.md" in screen
        assert "model    scripted, $3 in, $15 out per million tokens" in screen
        assert "mode     ask: asks before every action that no rule allows" in screen
        await on.press("shift+tab")
        await on.sees("mode     accept-edits")
        await on.send("/mode")
        await on.until(lambda: "sandbox  off" not in on.screen())  # a dialog has the room
        await on.press("escape")
        await on.sees("sandbox  off")
        await on.send("/help")  # its text has the room
        await on.until(lambda: "sandbox  off" not in on.screen())
        await on.send("hello")
        await on.sees("Hello.")
        assert "sandbox  off" not in on.screen()


async def test_a_key_continues_one_of_the_last_sessions(monkeypatch):
    for prompt in ("mend the roof", "paint the door"):
        async with running_app(monkeypatch, scripted(["Done."])) as on:
            await on.send(prompt)
            await on.sees("Done.")
            await on.idle()
    async with running_app(monkeypatch, size=(60, 26)) as on:
        await on.sees("  1 paint the door")
        assert "  2 mend the roof" in on.screen()
        await on.press("alt+2")
        await on.sees("› mend the roof")
        await on.send("/clear")
        await on.sees("  1 paint the door")
        await on.send("1")
        await on.sees("› paint the door")
        await on.send("/clear")
        await on.sees("  1 ")
        await on.send("7")  # there is no such session: it is a message
        await on.sees("› 7")


async def test_on_a_small_screen_it_leaves_out_what_does_not_fit(monkeypatch):
    async with running_app(monkeypatch, size=(40, 15)) as on:
        await on.sees("sandbox  off")
        assert "try" not in on.screen().split()
        assert all(len(line) <= 40 for line in on.screen().split("\n"))
        await on.pilot.resize_terminal(40, 9)
        await on.until(lambda: "sandbox" not in on.screen())
        assert "folder" in on.screen()
        assert "› " in on.screen() or "›" in on.screen()
