"""The managed policy: it only narrows, nothing overrides it, and a bad one stops the program."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import treadle
from treadle.apps.assembly.assemble import build_agent
from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.apps.assembly.model_choice import check_allowed
from treadle.apps.assembly.parts import SessionOptions
from treadle.apps.assembly.servers import make_servers
from treadle.apps.cli.commands.permissions import run
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.settings import managed_policy
from treadle.apps.settings.extensions import approve_extensions, discover_extensions
from treadle.apps.settings.folder_rules import load_rules, open_trust_store
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.settings import Settings
from treadle.core.errors import ConfigError
from treadle.core.transcript.items import ToolResultItem
from treadle.models import Say, Scripted
from treadle.workspace.options import WorkspaceOptions

Write = Callable[[str], Path]


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the file of this machine. In these tests its owner is the user who runs them."""
    file = tmp_path / "etc" / "policy.toml"
    file.parent.mkdir(mode=0o755)
    monkeypatch.setattr(managed_policy, "POLICY_FILE", file)
    monkeypatch.setattr(managed_policy, "CLAUDE_FILE", file.parent / "managed-settings.json")
    monkeypatch.setattr(managed_policy, "OWNERS", frozenset({0, os.getuid()}))

    def write(text: str) -> Path:
        file.write_text(text)
        file.chmod(0o644)
        return file

    return write


LIMITS = """permission_mode = "accept-edits"
sandbox = "auto"
network = false
max_cost = 2
max_turns = 7
"""


def test_no_origin_is_wider_than_the_policy(policy: Write, own_place: Path, monkeypatch):
    file = policy(LIMITS)
    (Path.home() / ".treadle").mkdir(exist_ok=True)
    (Path.home() / ".treadle/config.toml").write_text("max_cost = 50\nnetwork = true\n")
    monkeypatch.setenv("TREADLE_MAX_TURNS", "99")
    flags = {"permission_mode": "bypass", "sandbox": "off"}
    settings = load_settings(own_place, flags)
    found = (settings.permission_mode, settings.sandbox, settings.network)
    assert found == ("accept-edits", "auto", False)
    assert (settings.max_cost, settings.max_turns) == (2, 7)
    assert settings.origin("permission_mode") == f"{file}:1"
    assert f"--permission-mode: permission_mode bypass is not allowed: {file}:1 says" in "".join(
        settings.notes
    )
    # A value that is narrower stays.
    assert load_settings(own_place, {"permission_mode": "plan"}).permission_mode == "plan"


async def test_every_host_shows_which_value_was_wider(policy: Write, own_place: Path):
    file = policy(LIMITS)
    flags = {"permission_mode": "bypass", "sandbox": "off", "network": True}
    session = await build_agent(
        load_settings(own_place, flags), own_place, SessionOptions(model=Scripted(["x"]))
    )
    try:
        for line, name in enumerate(flags, 1):
            shown = [one for one in session.session_warnings if f": {name} " in one]
            assert len(shown) == 1
            assert f"is not allowed: {file}:{line} says" in shown[0]
            assert session.notes.count(shown[0]) == 1
    finally:
        await session.store.aclose()
        await session.aclose()


async def test_a_program_cannot_widen_it(policy: Write, own_place: Path):
    policy(
        LIMITS.replace("max_cost = 2", "")
        + '[permissions]\ndeny = ["Bash(rm:*)"]\nask = ["Bash(git push:*)"]\n'
    )
    model = Scripted([Say(calls=[("bash", {"command": "rm x"})]), "done"])
    wide = Settings(permission_mode="bypass", sandbox="off", max_cost=None, network=True)
    async with treadle.coding_agent(own_place, model=model, settings=wide, allow=["Bash"]) as agent:
        assert agent.permission_mode == "accept-edits"
        agent.change_permission_mode("bypass")
        assert agent.permission_mode == "accept-edits"
        result = await agent.run("go")
    [answer] = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert "rule Bash(rm:*)" in answer.text


async def test_an_ask_rule_of_it_holds_in_bypass(policy: Write, own_place: Path):
    policy('[permissions]\nask = ["Bash(touch x)"]\n')
    calls = [("bash", {"command": "touch x"}), ("bash", {"command": "touch y"})]
    model = Scripted([Say(calls=calls), "done"])
    options = {"permission_mode": "bypass", "sandbox": "off"}
    async with treadle.coding_agent(own_place, model=model, settings=options) as agent:
        await agent.run("go")
    assert not (own_place / "x").exists()
    assert (own_place / "y").exists()


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [
        ("anthropic/claude-sonnet-5-5", True),
        ("openai/gpt-5", False),
        ("anthropic/claude-sonnet-5-5,openai/gpt-5", False),
        ("mine", False),  # the same name at an address of the user
        ("gateway", True),
    ],
)
def test_models_are_those_that_it_lists(policy: Write, name: str, is_allowed: bool):
    policy('models = ["anthropic/*-5-5", "anthropic/*@gw.example.org"]')
    model, key = "anthropic/claude-sonnet-5-5", "KEY"
    aliases = {
        "mine": {"model": model, "base_url": "https://other.example.org", "key_variable": key},
        "gateway": {"model": model, "base_url": "https://gw.example.org", "key_variable": key},
    }
    if is_allowed:
        check_allowed(name, Settings(aliases=aliases))
    else:
        with pytest.raises(ConfigError, match="is not allowed by"):
            check_allowed(name, Settings(aliases=aliases))


@pytest.mark.parametrize("pattern", ["anthropic/*-5-5", "anthropic/*", "*/*"])
def test_the_address_of_a_model_by_a_variable_counts(policy: Write, monkeypatch, pattern: str):
    policy(f'models = ["{pattern}"]')
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://other.example.org")
    with pytest.raises(ConfigError, match=r"@other\.example\.org is not allowed"):
        check_allowed("sonnet", Settings())


def test_a_model_object_and_a_model_of_the_session_are_checked(policy: Write, own_place: Path):
    policy('models = ["anthropic/*"]')
    with pytest.raises(ConfigError, match="the model scripted is not allowed"):
        treadle.coding_agent(own_place, model=Scripted(["x"], name="scripted"))


@pytest.mark.parametrize(
    ("definition", "is_started"),
    [
        ({"url": "https://mcp.example.org/a"}, True),
        ({"url": "https://evil.org/mcp.example.org/a"}, False),
        ({"url": "https://x@mcp.example.org/a"}, False),
        ({"url": "https://mcp.example.org/a/../../b"}, False),
        ({"url": "http://mcp.example.org/a"}, False),
        ({"url": "https://mcp.example.org:8443/a"}, False),
        ({"command": "npx", "args": ["-y", "@example/files", "."]}, True),
        ({"command": "npx", "args": ["-y", "@other/files"]}, False),
        ({"command": "npx", "args": ["-y", "@example/denied"]}, False),
        ({"command": "npx -y @example/files"}, False),
    ],
)
def test_servers_are_those_that_it_lists(
    policy: Write, own_place: Path, definition: dict[str, object], is_started: bool
):
    policy("""
servers = [{url = "https://mcp.example.org/*"}, {command = "npx -y @example/* *"}]
denied_servers = [{command = "npx -y @example/denied *"}]
""")
    notes: list[str] = []
    workspace = LazyWorkspace(own_place, lambda: WorkspaceOptions(sandbox="off"), notes.append)
    made = make_servers(
        {"db": definition},
        workspace,
        user_servers=["db"],
        trusted=True,
        startup_wait=0,
        notes=notes,
        notify=None,
    )
    assert bool(made.servers) == is_started
    assert is_started or "MCP server db is not started: " in notes[0]


async def test_the_interface_offers_what_it_allows(policy: Write, own_place: Path):
    file = policy('permission_mode = "accept-edits"\nmax_cost = 3\n')
    session = HostedSession(own_place, {"model": "embedded", "permission_mode": "bypass"})
    assert session.permissions.modes == ("ask", "accept-edits", "plan")
    with pytest.raises(ConfigError, match=f"auto is not allowed: {file}:1"):
        session.permissions.change_mode("auto")
    session.choices = session.choices.__class__(removed_limits=frozenset({"max_cost"}))
    assert session.load_settings().max_cost == 3


def test_it_may_forbid_allow_rules_and_hooks(policy: Write, own_place: Path):
    policy("managed_rules_only = true\nhooks = false\n")
    home = Path.home() / ".treadle"
    home.mkdir(exist_ok=True)
    hook = {"hooks": [{"type": "command", "command": "true"}]}
    settings = {"permissions": {"allow": ["Bash"]}, "hooks": {"PreToolUse": [hook]}}
    (home / "settings.json").write_text(json.dumps(settings))
    loaded = load_rules(own_place, allow=["Edit"])
    assert not loaded.get_rules().allow
    assert "2 allow rules not used" in loaded.warnings[0]
    agent = treadle.coding_agent(own_place, model=Scripted(["x"]))
    assert agent.parts is not None
    assert not agent.parts.extensions.hooks
    agent.parts.policy.allow_for_session(("Bash",))
    assert not agent.parts.rules().allow


def test_it_is_listed_with_its_origin(policy: Write, own_place: Path, capsys):
    text = 'network = false\nmodels = ["anthropic/*"]\n[permissions]\ndeny = ["Read(.env)"]\n'
    file = policy(text)
    assert run(["--folder", str(own_place)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["limit", "network:", "false"],
        ["limit", "models:", "anthropic/*"],
        ["deny", "Read(.env)", "managed"],
    ]
    assert lines[0].endswith(f"managed policy: {file}:1")
    assert lines[2].endswith(f"managed policy: {file}:4")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("max_cost = ", "policy.toml:1: not TOML"),
        ("max_cots = 3", "did you mean 'max_cost'"),
        ("max_cost = 'x'", "max_cost cannot be 'x'"),
        ("model = 'x'", "the policy has no 'model'"),
        ("hooks = true", "the policy has no 'hooks', or not with this value"),
        ("managed_rules_only = 1", "the policy has no 'managed_rules_only'"),
        ("models = 'x'", "models must be a list"),
        ("servers = ['x']", "must be a list of tables"),
        ("servers = [{command = '\"x'}]", "must be a list of tables"),
        ("[permissions]\nallow = ['Bash']", "the policy only narrows"),
        ("[permissions]\ndeny = ['Bash(']", "policy.toml:1: 'Bash('"),
    ],
)
def test_a_wrong_file_stops_the_program(policy: Write, own_place: Path, text: str, problem: str):
    policy(text)
    with pytest.raises(ConfigError) as error:
        treadle.coding_agent(own_place, model=Scripted(["x"]))
    assert problem in str(error.value)


def test_a_file_that_others_can_change_is_refused(policy: Write, own_place: Path, monkeypatch):
    file = policy("network = false")

    def refusal() -> str:
        with pytest.raises(ConfigError) as error:
            load_settings(own_place)
        return str(error.value)

    for mode in (0o666, 0o664, 0o1646):
        file.chmod(mode)
        assert f"others than root can write to {file}" in refusal()
    file.chmod(0o644)
    file.parent.chmod(0o777)
    assert f"others than root can write to {file.parent}" in refusal()
    file.parent.chmod(0o755)
    for target in (own_place / "policy.toml", own_place / "missing"):
        (own_place / "policy.toml").write_text("network = false")
        file.unlink()
        file.symlink_to(target)  # a link to nothing is no missing policy
        assert f"{file} is a symlink" in refusal()
    file.unlink()
    policy("network = false")
    open_folder = own_place / "open"
    (open_folder / "treadle").mkdir(parents=True)
    (open_folder / "treadle").chmod(0o755)
    file.rename(open_folder / "treadle/policy.toml")
    open_folder.chmod(0o1777)  # as /tmp
    file.parent.rename(own_place / "before")
    file.parent.symlink_to(open_folder / "treadle")
    assert f"others than root can write to {open_folder}" in refusal()
    file.parent.unlink()
    (own_place / "before").rename(file.parent)
    policy("network = false")
    monkeypatch.setattr(
        managed_policy, "OWNERS", frozenset({0, os.getuid()} - {file.stat().st_uid})
    )
    assert "belongs to the user" in refusal()


def test_the_file_of_claude_code_narrows_as_well(policy: Write, own_place: Path):
    own = policy('models = ["*"]\npermission_mode = "auto"\n')
    file = own.parent / "managed-settings.json"
    settings = {
        "permissions": {
            "deny": ["Read(.env)", "Bash(curl:*)"],
            "allow": ["Bash"],
            "disableBypassPermissionsMode": "disable",
            "disableAutoMode": "disable",
        },
        "availableModels": ["sonnet"],
        "allowedMcpServers": [{"serverName": "db"}, {"serverCommand": ["npx", "*"]}],
        "allowManagedHooksOnly": True,
        "sandbox": {"enabled": True, "failIfUnavailable": True, "network": {}},
        "cleanupPeriodDays": 3,
    }
    file.write_text(json.dumps(settings, indent=1))
    file.chmod(0o644)
    found = managed_policy.read_policy()
    assert found.widest_mode == "accept-edits"
    assert found.limits["sandbox"].value == "required"
    found.check_model("anthropic/claude-sonnet-5-5")
    with pytest.raises(ConfigError, match=r"managed-settings\.json:"):
        found.check_model("anthropic/claude-opus-5")
    assert not found.find_server_objection("db", (), "https://x.org")
    assert found.find_server_objection("other", ("npx", "x"), "")
    assert not found.find_server_objection("other", ("npx", "*"), "")
    assert found.no_hooks
    unused = "cleanupPeriodDays, permissions.allow, sandbox.network"
    assert f"not used here: {unused}" in found.notes[0]
    rules = load_rules(own_place).get_rules()
    texts = [rule.text for rule in rules.deny]
    assert texts == ["Read(.env)", "Bash(curl:*)", "Sandbox(off)"]
    assert all(rule.origin.is_managed for rule in rules.deny)
    assert not rules.allow
    file.write_text('{"permissions": {"deny": "x"')
    with pytest.raises(ConfigError, match="not JSON"):
        load_settings(own_place)


def test_hosts_of_a_project_need_an_approval_and_stay_within_the_policy(
    policy: Write, own_place: Path
):
    config = own_place / ".treadle" / "config.toml"
    config.parent.mkdir()
    config.write_text('network = ["a.org", "x.b.org"]\n')

    def network(**given: Any) -> object:
        agent = treadle.coding_agent(own_place, model=Scripted(["x"]), **given)
        assert agent.parts is not None
        return agent.parts.settings.network

    for wrong in ("network = ", 'network = ["10.0.0.1"]', "x = 1"):
        config.write_text(wrong)
        assert network() is False  # a folder that is not trusted does not stop the program
    config.write_text('network = ["a.org", "x.b.org"]\n')
    open_trust_store().trust(own_place)
    assert network() is False
    [waiting] = discover_extensions(own_place).unapproved
    assert "the network of a.org; the network of x.b.org" in waiting.summary
    approve_extensions(own_place)
    assert network() == ("a.org", "x.b.org")
    assert network(network=["c.org"]) == ("c.org", "a.org", "x.b.org")
    policy('network = ["*.b.org", "a.org"]')
    assert network() == ("a.org", "x.b.org")
    assert network(network=True) == ("*.b.org", "a.org", "x.b.org")
    policy('network = ["*.b.org"]')
    assert network() == ("x.b.org",)
    assert network(network=["c.org"]) == ("x.b.org",)
    policy("network = false")
    assert network() is False
    config.write_text('network = ["evil.org"]\n')
    policy("")
    assert network() is False  # it changed since the approval


def test_hosts_are_a_setting(own_place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TREADLE_NETWORK", "a.org, *.b.org")
    assert load_settings(own_place).network == ("a.org", "*.b.org")
    monkeypatch.setenv("TREADLE_NETWORK", "on")
    assert load_settings(own_place).network is True
    monkeypatch.setenv("TREADLE_NETWORK", "10.0.0.1")
    with pytest.raises(ConfigError, match="true, false, or a list of hosts"):
        load_settings(own_place)
