"""A socket that only this machine reaches, for the programs that serve a page or a protocol."""

from __future__ import annotations

import socket

from treadle.core.errors import TreadleError
from treadle.lib.http.local_hosts import LOOPBACK


def listen_on_loopback(port: int) -> socket.socket:
    """Accepts connections from now on, so its address works as soon as it is printed."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise TreadleError(f"port {port} cannot be used: {error.strerror}") from error
    except OverflowError as error:
        listener.close()
        raise TreadleError(f"{port} is not a port; ports go up to 65535") from error
    return listener
