"""Ways in which HTTP servers and proxies behave, and a loopback server that plays one of them.

    for behavior in HTTP_BEHAVIORS:
        async with BehaviorServer(behavior) as server:
            ...  # one request to server.url: the client's outcome is behavior.outcome
            ...  # a second request: its body is NEXT_BODY, whatever came before

Any HTTP/1.1 client can be tested with it. It imports nothing of the clients that it tests.
"""

from .behaviors import HTTP_BEHAVIORS
from .script import BODY, NEXT_BODY, HTTPBehavior, HTTPOutcome
from .server import BehaviorServer, Delivery

__all__ = [
    "HTTP_BEHAVIORS",
    "HTTPBehavior",
    "HTTPOutcome",
    "BehaviorServer",
    "Delivery",
    "BODY",
    "NEXT_BODY",
]
