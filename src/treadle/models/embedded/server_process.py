"""The process with the weights: `python -I server_process.py SETTINGS`, started by server.py.

It loads one model, serves it on a private socket, and exits when its input closes, so it never
outlives its parent. It is a separate process because the library holds the interpreter lock while
it loads, replaces the signal handlers, and aborts on its own faults. It imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn


def main(settings: dict[str, str | int]) -> None:
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
    # A batch cannot be interrupted: small ones let a cancelled request end soon.
    params.n_batch = params.n_ubatch = settings["batch"]
    if settings["pooling"]:
        params.embedding = True
        if settings["pooling"] == "mean":
            params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = settings["threads"]
        cpu.poll = 0  # spinning threads starve each other on a busy machine
    server = xllamacpp.Server(params)  # it serves as long as this reference exists
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()


def exit_process(code: int, socket: Path, problem: str = "") -> NoReturn:
    """Exit at once: the library's own shutdown waits for its work."""
    with contextlib.suppress(OSError):  # the parent may be gone, and its pipes with it
        sys.stderr.write(problem)
        sys.stderr.flush()
    with contextlib.suppress(OSError):
        socket.unlink(missing_ok=True)
        socket.parent.rmdir()
    os._exit(code)


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    socket_path = Path(settings["socket"])
    try:
        main(settings)
    except BaseException as error:  # noqa: BLE001 - the parent reports it, whatever it is
        exit_process(1, socket_path, f"{type(error).__name__}: {error}\n")
    exit_process(0, socket_path)
