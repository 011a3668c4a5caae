"""The providers at their own addresses, without a network: a proxy with certificates of its own.

Each `CONNECT host:443` gets TLS with a certificate for that host, and then the loopback provider.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.lib.http.raw_server import Serving, pump, serving
from treadle.lib.http import client as http_client
from treadle.testing.provider import ProviderServer


class Authority:
    """Signs certificates; `file` is what a client has to trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
        self.file = folder / "ca.pem"
        ca = x509.BasicConstraints(ca=True, path_length=None)
        self.file.write_bytes(self._sign(self._name, self._key, ca))

    def make_context(self, host: str) -> ssl.SSLContext:
        """For a server with this name."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host[:64])])
        file = self._folder / f"{host}.pem"
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file.write_bytes(self._sign(subject, key, names) + private)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> bytes:
        now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - day).not_valid_after(now + day)
        builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)


@asynccontextmanager
async def tls_proxy(provider: ProviderServer, authority: Authority) -> AsyncIterator[Serving]:
    """A proxy that ends the TLS of every host and leads to the provider."""
    port = int(provider.url.rpartition(":")[2])

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        proxy.heads.append(head)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await writer.drain()
        await writer.start_tls(authority.make_context(head.split()[1].partition(":")[0]))
        inner_reader, inner = await asyncio.open_connection("127.0.0.1", port)
        back = asyncio.create_task(pump(inner_reader, writer))
        try:
            await pump(reader, inner)
        finally:
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)
            inner.transport.abort()

    async with serving(talk) as proxy:
        yield proxy


@contextmanager
def use_proxy(proxy: Serving, authority: Authority) -> Iterator[None]:
    """The variables of the proxy and the authority, for the client that all models share."""
    patch = pytest.MonkeyPatch()
    patch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    patch.setenv("SSL_CERT_FILE", str(authority.file))
    patch.delenv("NO_PROXY", raising=False)
    patch.setattr(http_client, "_shared_client", None)
    yield
    patch.undo()
