"""Runs conformance_client.py once for each connection, in a fork of a process that has loaded it.

The suite starts its client 26 times; loading the SDK takes longer than most scenarios. `CALLER` is
the program that the suite starts instead: it passes its arguments and environment to this process.

conformance_server.py SOCKET
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import sys
import traceback

from tests.tools.mcp import conformance_client

# The SDK is imported at the first connection, so that each fork would do it.
from treadle.tools.mcp import connection, http_transport  # noqa: F401
from treadle.tools.mcp.auth import oauth  # noqa: F401

CALLER = """\
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect(sys.argv[1])
    line.sendall(json.dumps([sys.argv[-1], dict(os.environ)]).encode() + b"\\n")
    *text, code = line.makefile().read().rpartition("\\n")
print(*text)
sys.exit(int(code or 1))
"""


def serve(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        gc.freeze()  # no fork walks what was loaded
        print("ready", flush=True)
        while True:
            line, _ = listener.accept()
            child = os.fork()
            if child == 0:
                listener.close()
                run_one(line)
            line.close()
            os.waitpid(child, 0)  # one at a time: a scenario measures how fast the client is


def run_one(line: socket.socket) -> None:
    """One scenario. Its output goes to the caller, the exit code as the last line."""
    code = 1
    for output in (1, 2):
        os.dup2(line.fileno(), output)
    try:
        url, environment = json.loads(line.makefile().readline())
        os.environ.clear()
        os.environ.update(environment)
        code = asyncio.run(conformance_client.run(url))
    except BaseException:  # noqa: BLE001 - told to the caller, whatever it is
        traceback.print_exc()
    print(f"\n{code}", end="", flush=True)
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
