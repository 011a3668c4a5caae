"""The network by domain, attacked by a program inside the sandbox."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.lib.http.raw_server import serving
from tests.workspace.helpers import needs_bubblewrap, opened
from treadle.lib.http import domain_proxy
from treadle.lib.http.hosts import is_within, join_network, parse_domains

# Each attempt prints what it got: the answer of a server, or a short reason.
ATTACK = r"""
import json, os, socket, ssl, struct, sys
plain, secure, bare = map(int, sys.argv[1:4])
proxy = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
proxy = (proxy[0], int(proxy[1]))

def talk(data, then=None, name=None):
    with socket.create_connection(proxy, timeout=60) as s:
        s.sendall(data)
        got = b""
        while b"\r\n\r\n" not in got:
            more = s.recv(65536)
            if not more:
                return "closed"
            got += more
        if not got.startswith(b"HTTP/1.1 200") or then is None:
            while True:
                more = s.recv(65536)
                if not more:
                    head, _, body = got.partition(b"\r\n\r\n")
                    return body.decode() if b" 200 " in head[:20] else head[9:12].decode()
                got += more
        if then == "tls":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(s, server_hostname=name) as t:
                t.sendall(b"GET / HTTP/1.1\r\n\r\n")
                return t.recv(100).decode()
        s.sendall(then)
        return s.recv(100).decode(errors="replace") or "closed"

def connect(target, then="tls", name="good.internal"):
    return talk(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode(), then, name)

def get(url, host="x", more="", body="", version="HTTP/1.1"):
    return talk(f"GET {url} {version}\r\nHost: {host}\r\n{more}\r\n{body}".encode())

def direct(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as s:
        s.settimeout(5)
        s.connect(address)
        s.send(b"GET / HTTP/1.1\r\n\r\n")
        return s.recv(100).decode()

good, tunnel = f"http://good.internal:{plain}", f"good.internal:{secure}"
second = f"GET http://other.internal:{plain}/ HTTP/1.1\r\nHost: other.internal\r\n\r\n"
attempts = {
    "plain": lambda: get(good + "/a?b"),
    "plain with another host header": lambda: get(good + "/", host="evil.org"),
    "tls": lambda: connect(tunnel),
    "tls, another spelling": lambda: connect(f"GOOD.internal.:{secure}", name="GOOD.INTERNAL"),
    "tls with another name": lambda: connect(tunnel, name="evil.org"),
    "tls without a name": lambda: connect(tunnel, name=None),
    "not tls in a tunnel": lambda: connect(tunnel, b"GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n"),
    "a host that is not listed": lambda: connect("evil.org:443"),
    "a host below a listed one": lambda: connect(f"x.good.internal:{secure}"),
    "a port that is not listed": lambda: connect(f"good.internal:{bare}"),
    "ssh": lambda: connect("example.org:22"),
    "an address": lambda: connect(f"127.0.0.1:{secure}"),
    "an address as a number": lambda: connect(f"2130706433:{secure}"),
    "an address of IPv6": lambda: connect(f"[::1]:{secure}"),
    "a service of the user": lambda: get(f"http://localhost:{plain}/"),
    "a listed name that resolves to this machine": lambda: get("http://rebound.org/"),
    "and in IPv6": lambda: get("http://six.org/"),
    "and mapped": lambda: get("http://mapped.org/"),
    "the metadata service": lambda: get("http://169.254.169.254/latest/meta-data/"),
    "the metadata service by a listed name": lambda: get("http://meta.org/"),
    "a user name before the host": lambda: get(f"http://good.internal:{plain}@evil.org/"),
    "a second request": lambda: get(good + "/", more="Content-Length: 0\r\n", body=second),
    "chunked": lambda: get(good, more="Transfer-Encoding: chunked\r\n", body="0\r\n\r\n" + second),
    "two lengths": lambda: get(good + "/", more="Content-Length: 0\r\nContent-Length: 90\r\n"),
    "a folded header": lambda: get(good + "/", more="X: a\r\n Host: evil.org\r\n"),
    "a line feed in a header": lambda: get(good + "/", more="X: a\nHost: evil.org\r\n"),
    "origin form": lambda: get("/", host="good.internal"),
    "https without a tunnel": lambda: get("https://good.internal/"),
    "another version": lambda: get(good + "/", version="HTTP/2.0"),
    "a head without an end": lambda: talk(b"GET " + b"a" * 200_000),
    "direct": lambda: direct(socket.AF_INET, ("127.0.0.1", plain)),
    "direct, public": lambda: direct(socket.AF_INET, ("93.184.216.34", 80)),
    "direct, IPv6": lambda: direct(socket.AF_INET6, ("2606:2800:220:1::1", 80)),
    "dns": lambda: socket.getaddrinfo("secret.example.org", 80),
    "a name server": lambda: direct(socket.AF_INET, ("8.8.8.8", 53), socket.SOCK_DGRAM),
    "a raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).fileno(),
    "packets": lambda: socket.socket(17, socket.SOCK_RAW).fileno(),
}
found = {}
for name, attempt in attempts.items():
    try:
        found[name] = attempt()
    except (OSError, ssl.SSLError) as error:
        found[name] = "error"
print(json.dumps(found))
"""
LISTED = ("rebound.org", "six.org", "mapped.org", "meta.org", "example.org", "*.below.org")
ADDRESSES = {
    "good.internal": "127.0.0.1",
    "rebound.org": "127.0.0.1",
    "six.org": "::1",
    "mapped.org": "::ffff:127.0.0.1",
    "meta.org": "169.254.169.254",
    "localhost": "127.0.0.1",
    "evil.org": "127.0.0.1",
    "x.good.internal": "127.0.0.1",
}


@needs_bubblewrap
async def test_a_program_reaches_the_listed_hosts_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    looked_up: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return [ADDRESSES[host]]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        body = f"reached {head.split()[1]}".encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    heads: list[str] = []
    monkeypatch.setattr(domain_proxy, "resolve_host", resolve)
    (folder / "attack.py").write_text(ATTACK)
    async with (
        serving(answer) as plain,
        serving(answer, tls=True) as secure,
        serving(answer) as bare,
    ):
        listed = (f"good.internal:{plain.port}", f"good.internal:{secure.port}", *LISTED)
        line = f"python3 attack.py {plain.port} {secure.port} {bare.port}"
        async with opened(folder, sandbox=True, network=listed) as workspace:
            result = await workspace.run(line, timeout=300)
        assert bare.connections == 0
    assert result.exit_code == 0, result.output
    assert not caplog.records, "the proxy handles whatever it is sent"
    found: dict[str, str] = json.loads(result.output.splitlines()[-1])
    reached = {name: text for name, text in found.items() if "reached" in str(text)}
    assert reached.pop("plain") == "reached /a?b"
    assert reached.pop("plain with another host header") == "reached /"
    assert reached.pop("tls").endswith("reached /")
    assert reached.pop("tls, another spelling").endswith("reached /")
    assert reached.pop("a second request") == "reached /"  # the first one
    assert not reached
    hosts = [line for head in heads for line in head.split("\r\n") if line.startswith("Host")]
    assert set(hosts) == {f"Host: good.internal:{plain.port}"}
    assert "evil.org" not in "".join(heads)
    assert {"evil.org", "localhost", "x.good.internal"}.isdisjoint(looked_up)
    assert "its network is limited to some hosts: " in result.note
    assert "evil.org: it is not in the list of the network" in result.note
    assert "meta.org: its address 169.254.169.254 is private" in result.note


@needs_bubblewrap
async def test_a_command_gets_further_hosts_for_itself_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr(domain_proxy, "resolve_host", resolve)
    async with serving(answer) as server, opened(folder, sandbox=True) as workspace:
        line = f"curl -sS -m 60 http://good.internal:{server.port}/"
        hosts = (f"good.internal:{server.port}",)
        with_hosts = await workspace.run(line, network=hosts)
        background = await workspace.start(line, network=hosts)
        ended = await background.wait()
        without = await workspace.run(line)
    assert (with_hosts.output, with_hosts.exit_code) == ("ok", 0)
    assert (ended.output, ended.exit_code) == ("ok", 0)
    assert without.exit_code != 0


def test_lists_of_hosts_are_compared():
    assert is_within(["a.x.org", "*.b.x.org"], ["*.x.org"])
    assert is_within(["x.org"], ["x.org:8080"])
    assert not is_within(["x.org:8080"], ["x.org"])
    assert not is_within(["x.org"], ["*.x.org"])
    assert not is_within(["*.org"], ["*.x.org"])
    assert join_network(("a.org",), ("b.org", "a.org")) == ("a.org", "b.org")
    assert join_network(True, ("b.org",)) is True
    assert join_network(("a.org",), None) == ("a.org",)
    assert join_network(("a.org",), False) is False
    for wrong in ("*", "*.*.org", "10.0.0.1", "::1", "0x7f.1", "", "a/b", "2130706433"):
        with pytest.raises(ValueError, match="host name"):
            parse_domains([wrong])
