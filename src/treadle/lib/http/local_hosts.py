"""Host names of this machine: they need no proxy, and a key may be sent to them."""

LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """`localhost` and the loopback addresses."""
    if host == "localhost" or host.endswith(".localhost") or host == "::1":
        return True
    return host.startswith("127.") and host.replace(".", "").isdigit()


def is_local(host: str) -> bool:
    """This machine, also as a server's own address or as seen from a container."""
    return is_loopback(host) or host in ("0.0.0.0", "host.docker.internal")
