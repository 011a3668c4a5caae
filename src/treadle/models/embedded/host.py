"""The process that holds the weights: `python -m treadle.models.embedded.host SETTINGS`.

It loads one model, serves it on a private socket, and ends when its input closes, so it never
outlives its parent. It is a process of its own because the library keeps the interpreter locked
while it loads, takes over the signal handlers, and aborts on its own faults. Above it stands
server.py; nothing of ours is below.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys


def main(settings: dict[str, str | int]) -> int:
    xllamacpp = importlib.import_module("xllamacpp")  # ships no types

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.hostnames = [settings["socket"]]
    params.n_ctx = settings["window"]
    params.slot_save_path = settings["slots"]
    params.endpoint_slots = True
    params.n_parallel = 1
    params.cache_ram_mib = 0
    params.warmup = False
    params.ui = False
    params.verbosity = -1
    # A batch is not interrupted: small ones let a cancelled request end soon.
    params.n_batch = params.n_ubatch = settings["batch"]
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = settings["threads"]
        cpu.poll = 0  # spinning threads starve each other on a busy machine
    server = xllamacpp.Server(params)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(server.listening_address, flush=True)
    sys.stdin.buffer.read()
    return 0


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    try:
        code = main(given)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        code = 1
    folder = os.path.dirname(given["socket"])
    for remove, place in ((os.unlink, given["socket"]), (os.rmdir, folder)):
        try:
            remove(place)
        except OSError:
            pass
    sys.stderr.flush()
    os._exit(code)  # the library's own shutdown waits for work that nobody wants any more
