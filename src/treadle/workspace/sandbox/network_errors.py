"""Finds in the output of a failed command that it wanted a network, which the sandbox has not.

Programs report that only in their output: a failed name look-up, a refused connection. The result
is a hint for the model, never a decision. Used by workspace/local.py.
"""

from __future__ import annotations

import re

from treadle.core.lazy_regex import compile_lazily

NO_NETWORK_NOTE = (
    "the sandbox has no network: names cannot be looked up, and servers outside the sandbox cannot "
    'be reached, also not on localhost; a command with `sandbox: "network"` asks the user for it'
)
_PROBLEMS = compile_lazily(
    r"could not resolve|(?:failed|unable) to resolve|temporary failure in name resolution|"
    r"name or service not known|no address associated|nodename nor servname|no such host|"
    r"name resolution|dns (?:error|lookup|failure)|getaddrinfo|EAI_AGAIN|ENOTFOUND|ENETUNREACH|"
    r"ECONNREFUSED|connection refused|network is unreachable|no route to host|"
    r"failed to establish a new connection|temporary failure resolving",
    re.IGNORECASE,
)


def mentions_network(output: str) -> bool:
    return _PROBLEMS.search(output) is not None
