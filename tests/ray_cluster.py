"""A cluster of Ray for the tests: a head and nodes on loopback, the head's state in a Redis.

Each node is a process group of its own, so that a kill takes all of it. The extra `ray` is not in
the environment of ./check (docs/decisions/fleet-queue.md): scripts/ray-tests has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from treadle.core.contracts.run_engine import Deliver

ROOT = Path(__file__).resolve().parents[1]
MISSING = "the extra `ray` is not installed: run scripts/ray-tests"
START_ATTEMPTS = 5  # a node gives up if its parts do not start within 15 s
AGENT_PORTS = (
    "--metrics-export-port",
    "--runtime-env-agent-port",
    "--dashboard-agent-grpc-port",
    "--dashboard-agent-listen-port",
)
# A machine with other work is slow, and no node of it is dead for that.
PATIENCE = {
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "300",
    "RAY_health_check_timeout_ms": "30000",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class RayCluster:
    """`start` and `kill` a node by its name: `head` (without room for tasks), `a`, `b`, …"""

    def __init__(self, *, redis: bool, dashboard: bool = False, env: dict[str, str] | None = None):
        self.folder = Path(tempfile.mkdtemp(prefix="tr-", dir="/tmp"))  # paths of sockets are short
        self._port = find_port()
        self._dashboard = dashboard
        self.environment = {**os.environ, **PATIENCE, "PYTHONPATH": str(ROOT), **(env or {})}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        if redis:
            port = find_port()
            self.environment["RAY_REDIS_ADDRESS"] = f"127.0.0.1:{port}"
            options = ("--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder))
            self._run("redis", ["redis-server", "--port", str(port), *options])

    @property
    def address(self) -> str:
        return f"127.0.0.2:{self._port}"

    def start(self, name: str, *, cpus: int = 0) -> None:
        place = ["--head", "--port", str(self._port), "--temp-dir", str(self.folder / "ray")]
        place += [f"--include-dashboard={str(self._dashboard).lower()}"]
        number = 2 if name == "head" else 3 + ord(name) - ord("a")
        words = place if name == "head" else ["--address", self.address]
        words += ["--node-ip-address", f"127.0.0.{number}", "--num-cpus", str(cpus), "--block"]
        for port in AGENT_PORTS:
            words += [port, str(find_port())]
        # A head that sees processes of other nodes takes them for itself, and does not start again.
        alone = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        if name != "head":
            alone = []
        log = self.folder / f"{name}.log"
        for _ in range(START_ATTEMPTS):
            self._run(name, [*alone, str(Path(sys.executable).parent / "ray"), "start", *words])
            while self._processes[name].poll() is None:
                if "will now block" in log.read_text():
                    return
                time.sleep(0.1)
            self.kill(name)
        raise AssertionError(f"{name} did not start: {log.read_text()}")

    def kill(self, name: str) -> None:
        """As if its machine had lost power."""
        process = self._processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for name in [*self._processes]:
            self.kill(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("wb") as output:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )


@contextmanager
def ray_cluster(*, nodes: int = 0, redis: bool = False, **env: str) -> Iterator[RayCluster]:
    """With a head that has room for four tasks, or that many nodes with room for two each."""
    pytest.importorskip("ray", reason=MISSING)
    if redis and shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed: run scripts/debian-packages")
    cluster = RayCluster(redis=redis, env=env)
    try:
        cluster.start("head", cpus=0 if nodes else 4)
        for number in range(nodes):
            cluster.start(chr(ord("a") + number), cpus=2)
        yield cluster
    finally:
        cluster.close()


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Forward:
    """A `deliver` that processes of Ray can call: it calls that of the test, over a socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __call__(self, job_id: str) -> None:
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            writer.write(f"{job_id}\n".encode())
            if await reader.readline() != b"done\n":
                raise RuntimeError("the delivery failed")
        finally:
            writer.close()


async def serve_deliveries(path: Path, deliver: Deliver) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        job = asyncio.ensure_future(deliver((await reader.readline()).decode().strip()))
        gone = asyncio.ensure_future(reader.read())  # its process was stopped
        await asyncio.wait([job, gone], return_when=asyncio.FIRST_COMPLETED)
        if job.done() and job.exception() is None:
            writer.write(b"done\n")
        for one in (job, gone):
            one.cancel()
        writer.close()

    return await asyncio.start_unix_server(answer, path)
