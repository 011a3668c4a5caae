"""Finds in the output of a command that it wanted a network, which the sandbox has not.

Programs report that only in their output: a failed name look-up, a refused connection. The result
is a hint for the model, never a decision. Used by workspace/local.py.
"""

from __future__ import annotations

import re

from treadle.lib.text.lazy_regex import compile_lazily

NO_NETWORK_NOTE = (
    "the sandbox has no network: names cannot be looked up, and servers outside the sandbox cannot "
    'be reached, also not on localhost; a command with `sandbox: "network"` asks the user for it'
)
_PROBLEMS = compile_lazily(
    r"could not resolve|(?:failed|unable) to resolve|temporary failure in name resolution|"
    r"name or service not known|no address associated|nodename nor servname|no such host|"
    r"name resolution|dns (?:error|lookup|failure)|getaddrinfo|EAI_AGAIN|ENOTFOUND|ENETUNREACH|"
    r"ECONNREFUSED|connection refused|network is unreachable|no route to host|"
    r"failed to establish a new connection|temporary failure resolving|couldn't connect to server|"
    r"\(from versions: none\)",
    re.IGNORECASE,
)
# What hardly stands in a file: `npm install 2>&1 | tail` ends with 0, whatever npm said.
_CERTAIN_PROBLEMS = compile_lazily(
    r"could not resolve host: \S|getaddrinfo (?:EAI_AGAIN|ENOTFOUND) \S|"
    r"\[Errno -[23]\] \w|: temporary failure in name resolution$|"
    r"temporary failure resolving '\S|curl: \(7\) |\(from versions: none\)$",
    re.IGNORECASE | re.MULTILINE,
)


def mentions_network(output: str, *, failed: bool = True) -> bool:
    """`failed`: the command did, so a looser sign is enough."""
    return (_PROBLEMS if failed else _CERTAIN_PROBLEMS).search(output) is not None
