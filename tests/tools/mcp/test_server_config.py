from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from treadle.core.errors import ConfigError, MissingExtra
from treadle.tools.mcp import McpServer, McpServerConfig, load_servers, parse_server_config


def test_servers_are_read_from_a_file_and_those_switched_off_are_not(own_place: Path):
    file = own_place / ".mcp.json"
    assert load_servers(file) == {}
    on, off = {"command": "a"}, {"command": "b", "disabled": True}
    file.write_text(json.dumps({"mcpServers": {"on": on, "off": off}}))
    assert load_servers(file) == {"on": on}
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert load_servers(file) == {"on": on}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{\n"mcpServers": {,}}', ":2: not JSON"),
        ('{"mcpServers": []}', "has to be an object of servers"),
        ('{"mcpServers": {"a": "b"}}', "the server 'a' has to be an object"),
        ("[" * 100_000, "nested too deep"),
        ("[]", "has to be an object"),
    ],
)
def test_a_broken_file_is_an_error(own_place: Path, text: str, words: str):
    (own_place / ".mcp.json").write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_servers(own_place / ".mcp.json")


@pytest.mark.parametrize("given", ["db-server", ["db-server"], None])
def test_a_definition_that_is_no_dict_is_an_error_with_an_example(given: Any):
    with pytest.raises(ConfigError, match=r"server 'db': the definition is .*\"command\": "):
        McpServer("db", given)


def test_variables_are_filled_in_everywhere():
    environ = {"HOST": "example.org", "KEY": "k", "EMPTY": ""}
    raw: dict[str, Any] = {
        "url": "https://${HOST}/mcp",
        "headers": {"Authorization": "Bearer ${KEY}", "X": "${EMPTY:-none}"},
        "timeout": 5000,
        "alwaysAllow": ["everything"],
    }
    headers = {"Authorization": "Bearer k", "X": "none"}
    assert parse_server_config("far", raw, environ) == McpServerConfig(
        "http", url="https://example.org/mcp", headers=headers, timeout=5.0
    )
    near = parse_server_config("near", {"command": "${A:-x}", "args": ["${A:-}", 8]}, {})
    assert (near.command, near.args) == ("x", ("", "8"))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({}, "needs a command or a url"),
        ({"command": "a", "url": "http://b"}, "and not both"),
        ({"command": ["a"]}, "command has to be a text"),
        ({"command": "a", "args": "b"}, "args has to be a list"),
        ({"command": "a", "args": [["b"]]}, r"\['b'\] in args has to be a text"),
        ({"command": "a", "disabled": "yes"}, "disabled has to be true or false"),
        ({"command": "a", "env": {"K": None}}, "None in env.K has to be a text"),
        ({"command": ""}, "it has: nothing"),
        ({"command": "a", "env": {"K": "${UNSET}"}}, "the variable UNSET is not set"),
        ({"command": "a", "type": "http"}, "needs a url"),
        ({"url": "http://b", "type": "carrier-pigeon"}, "unknown type"),
        ({"url": "file:///etc/passwd"}, "has to begin with http"),
        ({"url": "https://"}, "the url needs a host"),
        ({"url": "http://b:port/mcp"}, "the url needs a host, and a port"),
        ({"comand": "x"}, r"unknown key 'comand'; did you mean 'command'\?"),
        ({"command": "x", "arguments": ["a"]}, r"unknown key 'arguments'; did you mean 'args'\?"),
        ({"anything": "x"}, r"it has: anything"),
        ({"command": "a", "timeout": -1}, "milliseconds above 0"),
    ],
)
def test_a_wrong_definition_says_what_is_wrong(raw: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=rf"server 'x': .*{words}"):
        parse_server_config("x", raw, {})


def test_without_the_sdk_a_server_cannot_be_made_and_the_error_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra) as raised:
        McpServer("files", {"url": "http://localhost/mcp"})
    assert str(raised.value) == (
        "the extra 'mcp' (MCP servers) is not installed: pip install 'treadle[mcp]'"
    )
