"""The run engine of a cluster of Ray: a delivery is a task of Ray, with the resources of its job.

Ray chooses the machine, waits for room, repeats the task if its process or its machine dies, and
shows it (`ray list tasks`, the dashboard). It keeps nothing of a task whose owner died, and has no
timer: so jobs are rows, as those of local_engine.py. The owner is the worker that started this
engine; `deliver` is called by processes of Ray. Needs the extra `ray`, imported by `start` only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable

from treadle._version import __version__
from treadle.apps.fleet.engines.local_engine import AGAIN_SECONDS, LocalEngine
from treadle.core.contracts.run_engine import Deliver, RunJob
from treadle.core.errors import ConfigError
from treadle.core.extras import require_extra
from treadle.lib.logger import logger

ADDRESS = "RAY_ADDRESS"  # as Ray's own programs
CONNECT_SECONDS = 90.0  # a head that restarts is waited for
STOP_SECONDS = 40.0  # a run ends its step, or is given up, in less
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
CPUS = 1.0  # of a job that does not say it


class RayEngine(LocalEngine):
    name = "ray"
    is_remote = True
    default_concurrency = 1000  # Ray lets them wait for room, and may grow by what waits

    async def start(
        self, worker: str, concurrency: int, deliver: Deliver, *, poll: float = 1.0
    ) -> None:
        require_extra("ray")
        await asyncio.to_thread(_connect)
        await super().start(worker, concurrency, deliver, poll=poll)

    async def _hand_over(self, job: RunJob, deliver: Deliver) -> None:
        import ray

        if not ray.is_initialized():
            await asyncio.to_thread(_connect)
        needs = job.resources
        place = ray.remote(_deliver_here).options(
            name=job.id,
            num_cpus=needs.get("cpus", CPUS),
            num_gpus=needs.get("gpus", 0),
            memory=int(needs["memory"]) if "memory" in needs else None,
            max_retries=-1,  # whose process or machine died; how often, the record of the run says
        )
        reference = place.remote(deliver, job.id)
        try:
            await reference
        except asyncio.CancelledError:
            ray.cancel(reference)  # its worker ends its step
            ended = asyncio.ensure_future(_until_ended(reference))
            if not (await asyncio.wait([ended], timeout=STOP_SECONDS))[0]:
                ray.cancel(reference, force=True)
            raise


async def _until_ended(reference: Awaitable[object]) -> None:
    with contextlib.suppress(Exception):
        await reference


def _deliver_here(deliver: Deliver, job_id: str) -> None:
    """In a process of Ray."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        asyncio.run(_call(deliver, job_id))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _call(deliver: Deliver, job_id: str) -> None:
    """Ray interrupts its processes: at a cancellation, and when the owner of a task is dead. The
    run then ends its step, and does not fail."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None, "this is one"
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    await deliver(job_id)


def _get_version() -> str:
    from treadle import __version__

    return __version__


def _connect() -> None:
    """Join the cluster as a driver, if this process has not. ConfigError if there is none for a
    while, or if its machines do not have this version."""
    address = os.environ.get(ADDRESS) or "auto"
    end = time.monotonic() + CONNECT_SECONDS
    while not (version := _try_connection(address, is_last=time.monotonic() > end)):
        time.sleep(AGAIN_SECONDS)
    if version != __version__:
        raise ConfigError(
            f"the cluster of Ray at {address} has treadle {version}; this is {__version__}: "
            "install the same version on all machines"
        )


def _try_connection(address: str, *, is_last: bool) -> str:
    """The version of this program on the cluster; "" if it cannot be used yet."""
    import ray
    from ray.exceptions import RayError

    try:
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, logging_level="critical")
        return str(ray.get(ray.remote(_get_version).options(num_cpus=0).remote()))
    except (ConnectionError, RuntimeError, RayError) as error:
        ray.shutdown()
        problem = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        if not is_last:
            logger.info("waiting for the cluster of Ray at %s: %s", address, problem)
            return ""
        raise ConfigError(
            f"the cluster of Ray at {address} cannot be used: {problem}; start one with "
            "`ray start --head`, or name it with --address"
        ) from error
