"""Processes that are killed between the submission of a batch and its result."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from tests.patience import until
from treadle.models.batches.batch_store import BatchFolder
from treadle.testing.provider import FakeReply, FakeUsage, ProviderServer

ROOT = Path(__file__).resolve().parents[3]
BATCH_PRICE = (1_000 * 10.0 + 100 * 100.0) / 1e6 / 2
each_interface = pytest.mark.parametrize("kind", ["messages", "chat", "responses"])


def make_server() -> ProviderServer:
    reply = FakeReply("forty-two", usage=FakeUsage(input=1_000, output=100))
    return ProviderServer(lambda request: reply, api_key="k")


async def start(kind: str, server: ProviderServer, folder: Path) -> asyncio.subprocess.Process:
    program = ("-m", "tests.models.batches.program", kind, server.url, str(folder), "what is it?")
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, *program, stdout=pipe, cwd=ROOT)


async def kill_after_submission(kind: str, server: ProviderServer, folder: Path) -> None:
    """The process has submitted, recorded the id, and looked at the batch once."""
    before = len(server.requests)
    process = await start(kind, server, folder)
    await until(lambda: any(request.method == "GET" for request in server.requests[before:]))
    process.send_signal(signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL


async def finish(kind: str, server: ProviderServer, folder: Path) -> None:
    """The process answers, and has paid once."""
    process = await start(kind, server, folder)
    printed, _ = await process.communicate()
    text, cost = printed.decode().split()
    assert text == "forty-two"
    assert float(cost) == pytest.approx(BATCH_PRICE)


@each_interface
async def test_a_batch_that_is_killed_between_submit_and_result_is_fetched_once(
    kind: str, tmp_path: Path
):
    async with make_server() as server:
        server.batches.hold = True
        await kill_after_submission(kind, server, tmp_path)
        await kill_after_submission(kind, server, tmp_path)  # the next one waits for it, too
        server.batches.end()
        await finish(kind, server, tmp_path)
        assert len(server.batches.batches) == len(server.generation_requests) == 1
    [record] = await BatchFolder(tmp_path / "batches").load()
    assert record.batch_id == server.batches.batches[0].id


@each_interface
async def test_a_process_that_is_killed_while_it_submits_leaves_a_batch_that_is_found(
    kind: str, tmp_path: Path
):
    """As if it had died before it could write the id."""
    async with make_server() as server:
        server.batches.hold = True
        await kill_after_submission(kind, server, tmp_path)
        store = BatchFolder(tmp_path / "batches")
        [record] = await store.load()
        await store.save(msgspec.structs.replace(record, batch_id=""))
        server.batches.end()
        await finish(kind, server, tmp_path)
        assert len(server.batches.batches) == len(server.generation_requests) == 1
    assert (await store.load()) == [record]


@each_interface
async def test_a_process_that_is_killed_before_it_submits_leaves_a_record_that_is_replaced(
    kind: str, tmp_path: Path
):
    async with make_server() as server:
        server.batches.hold = True
        await kill_after_submission(kind, server, tmp_path)
        store = BatchFolder(tmp_path / "batches")
        [record] = await store.load()
        await store.save(msgspec.structs.replace(record, batch_id=""))
        server.batches.batches.clear()  # it never came
        server.batches.hold = False
        await finish(kind, server, tmp_path)
        assert len(server.batches.batches) == 1
    [new] = await store.load()
    assert new.id != record.id
