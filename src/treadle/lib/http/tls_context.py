"""The TLS context of the HTTP client, with the certificates that the environment names.

It opens no connection. Used by client.py.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# An interpreter built on another system may look for certificates in a folder that is not here.
_SYSTEM_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def make_tls_context(environ: Mapping[str, str]) -> ssl.SSLContext:
    """A verifying context. SSL_CERT_FILE, SSL_CERT_DIR, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE
    replace the system's certificates; NODE_EXTRA_CA_CERTS adds to them. OSError if one of them
    cannot be read."""
    file = environ.get("SSL_CERT_FILE") or None
    folder = environ.get("SSL_CERT_DIR") or None
    if file is None and folder is None:
        bundle = environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE") or None
        if bundle is not None:
            file, folder = (None, bundle) if Path(bundle).is_dir() else (bundle, None)
    try:
        context = ssl.create_default_context(cafile=file, capath=folder)
        extra = environ.get("NODE_EXTRA_CA_CERTS")
        if extra:
            context.load_verify_locations(cafile=extra)
    except OSError as error:  # ssl.SSLError is one
        raise OSError(
            f"the certificates named by the environment cannot be read ({error}): check "
            "SSL_CERT_FILE, SSL_CERT_DIR, REQUESTS_CA_BUNDLE and NODE_EXTRA_CA_CERTS"
        ) from error
    if file is None and folder is None and not context.cert_store_stats()["x509_ca"]:
        for bundle in _SYSTEM_BUNDLES:
            if Path(bundle).exists():
                context.load_verify_locations(cafile=bundle)
                break
    context.set_alpn_protocols(["http/1.1"])
    return context
