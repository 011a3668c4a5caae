"""Starts the process with the weights (server_process.py) and sends it requests.

    LlamaServer.open()          start and load, once, outside the event loop
    LlamaServer.complete()      one completion, streamed; closing the iterator stops it
    LlamaServer.load_prefix()   load the state of a fixed prefix from disk, or compute and save it
    LlamaServer.count_tokens()  tokens of a text
    LlamaServer.embed()         vectors of texts, if it was created with a pooling

It knows nothing of tools or transcripts. Used by model.py, repair.py and models/embeddings.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.core.errors import BadRequest, ContextTooLong, Overloaded, StreamBroken, UnknownModel
from treadle.lib.files.private_files import make_private_folder
from treadle.lib.http.client import Client
from treadle.lib.http.sse import SSEReader
from treadle.lib.http.timeouts import Timeouts
from treadle.lib.http.transport import ConnectFailed, Response, TransportError

SERVER_SCRIPT = Path(__file__).with_name("server_process.py")
MAX_CACHED_PREFIXES = 8
IDLE_SAMPLES = 5
MAX_ANSWER_BYTES = 64 << 20
# A slow machine reads a long prompt for minutes, without a byte in between.
NO_TIMEOUTS = Timeouts(first_byte=None, first_content=None, idle=None, total=None, max_bytes=None)


# How the vectors of the tokens of a text become one: their mean, or as the model says.
Pooling = Literal["mean", "model"]


class CompletionChunk(msgspec.Struct, frozen=True, gc=False):
    """Some generated text; the last chunk has the counts and says whether the text was cut."""

    text: str
    is_cut: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class LlamaServer:
    """One loaded model. It answers concurrent streams one after the other."""

    def __init__(
        self,
        model: Path,
        *,
        window: int,
        threads: int | None,
        batch: int = 64,
        pooling: Pooling | None = None,
    ) -> None:
        self.model = model
        self._pooling = pooling
        self.window = window
        self._threads = threads
        self._batch = batch
        self._process: subprocess.Popen[bytes] | None = None
        self._socket = ""
        self._client = Client()
        self._lock = threading.Lock()
        self._users: set[asyncio.AbstractEventLoop] = set()  # a thread has a loop of its own
        self._users_lock = threading.Lock()
        self._waiting_openers = 0
        self._loaded_prefix = ""
        self._digest = ""

    async def open(self) -> None:
        """Start the process and load the weights; returns at once if they are loaded."""
        with self._users_lock:
            self._users.add(asyncio.get_running_loop())
            if self._is_ready:
                return
        self._waiting_openers += 1
        try:
            await asyncio.to_thread(self._start)
        except asyncio.CancelledError:
            if self._waiting_openers == 1 and self._process is not None and not self._socket:
                self._process.kill()  # no other caller waits for it; this also ends the thread
            raise
        finally:
            self._waiting_openers -= 1

    @property
    def _is_ready(self) -> bool:
        process = self._process
        return process is not None and process.poll() is None and bool(self._socket)

    def _start(self) -> None:
        with self._lock:
            if self._is_ready:
                return
            self._socket = self._loaded_prefix = ""
            socket = Path(tempfile.mkdtemp(prefix="treadle-")) / "model.sock"
            slots = get_prefix_dir()
            make_private_folder(slots)
            settings = {
                "model": str(self.model.resolve()),
                "socket": str(socket),
                "window": self.window,
                "slots": f"{slots}{os.sep}",
                "batch": self._batch,
                "pooling": self._pooling or "",
                "threads": self._threads or count_idle_cores(),
            }
            process = subprocess.Popen(
                # -I: no module is loaded from the current folder.
                [sys.executable, "-I", str(SERVER_SCRIPT), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # only the parent handles an interrupt in the terminal
                umask=0o077,  # the prefixes that it saves have the user's instructions
                cwd="/",
            )
            self._process = process
            weakref.finalize(self, _kill_process, process, socket)
            assert process.stdout is not None
            ready = process.stdout.readline()
            if not ready:
                reason = _load_error(process, self.model)
                _kill_process(process, socket)
                raise UnknownModel(reason, provider="embedded")
            self._digest = _hash_weights(self.model)
            self._client = Client(socket_path=str(socket), environ={})
            self._socket = str(socket)

    async def aclose(self) -> None:
        """Close what this event loop uses; the last one that uses the process ends it."""
        await self._client.aclose()
        with self._users_lock:
            self._users.discard(asyncio.get_running_loop())
            self._users = {loop for loop in self._users if not loop.is_closed()}
            if self._users:
                return
            process, socket, self._process, self._socket = self._process, self._socket, None, ""
        if process is not None:
            await asyncio.to_thread(_kill_process, process, Path(socket))

    async def complete(self, prompt: str, **options: Any) -> AsyncGenerator[CompletionChunk, None]:
        """Generate after this prompt. Closing the iterator stops the generation."""
        body = {"prompt": prompt, "stream": True, "cache_prompt": True, **options}
        finished = False
        async with self._post("/completion", body) as response:
            if response.status != 200:
                raise _map_error(json.loads(await response.read())["error"])
            reader = SSEReader()
            async for data in response:
                for _, event_data in reader.feed(data):
                    event = json.loads(event_data)
                    if "error" in event:
                        raise _map_error(event["error"])
                    finished = bool(event.get("stop"))
                    yield _to_chunk(event)
        if not finished:
            message = "The embedded model's stream ended before the reply was complete: try again."
            raise StreamBroken(message, provider="embedded")

    async def complete_text(self, prompt: str, **options: Any) -> CompletionChunk:
        """A whole completion as one chunk."""
        texts: list[str] = []
        async with contextlib.aclosing(self.complete(prompt, **options)) as chunks:
            async for chunk in chunks:
                texts.append(chunk.text)
        return msgspec.structs.replace(chunk, text="".join(texts))

    async def load_prefix(self, prefix: str) -> None:
        """Load the state of this prefix: from disk, or computed once and then saved there."""
        name = self._prefix_name(prefix)
        if self._loaded_prefix == name:
            return
        await self.open()
        if not await self._run_slot_action("restore", name):
            await self.complete_text(prefix, n_predict=0)
            await self._run_slot_action("save", name)
            await asyncio.to_thread(_delete_oldest, get_prefix_dir())
        self._loaded_prefix = name

    async def has_prefix(self, prefix: str) -> bool:
        """Whether the state of this prefix is in memory or on disk."""
        await self.open()
        name = self._prefix_name(prefix)
        path = get_prefix_dir() / name
        return self._loaded_prefix == name or await asyncio.to_thread(path.exists)

    async def count_tokens(self, text: str) -> int:
        body = {"content": text, "parse_special": True}
        async with self._post("/tokenize", body) as response:
            return len(json.loads(await response.read(MAX_ANSWER_BYTES))["tokens"])

    async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        """A vector for each text, and the tokens that were read."""
        async with self._post("/v1/embeddings", {"input": list(texts)}) as response:
            reply = json.loads(await response.read(MAX_ANSWER_BYTES))
        if response.status != 200:
            raise _map_error(reply["error"])
        vectors = sorted(reply["data"], key=lambda vector: int(vector["index"]))
        return [vector["embedding"] for vector in vectors], int(reply["usage"]["prompt_tokens"])

    def _prefix_name(self, prefix: str) -> str:
        parts = (self._digest, metadata.version("xllamacpp"), str(self.window), prefix)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32] + ".slot"

    async def _run_slot_action(self, action: str, name: str) -> bool:
        if action == "restore" and not (get_prefix_dir() / name).exists():
            return False
        async with self._post(f"/slots/0?action={action}", {"filename": name}) as response:
            await response.read()
            return response.status == 200

    @contextlib.asynccontextmanager
    async def _post(self, path: str, body: dict[str, Any]) -> AsyncIterator[Response]:
        await self.open()
        headers, data = {"content-type": "application/json"}, json.dumps(body).encode()
        try:
            url = f"http://embedded{path}"
            async with self._client.post(url, headers, data, NO_TIMEOUTS) as response:
                yield response
        except ConnectFailed as error:
            message = f"The embedded model's process is gone ({error})."
            raise Overloaded(message, provider="embedded") from error
        except TransportError as error:
            message = f"The embedded model's process ended in the middle of a reply ({error})."
            raise StreamBroken(message, provider="embedded") from error


def count_idle_cores() -> int:
    """How many cores are idle now: two threads on one busy core are slower than one.

    The load average would count what ended a minute ago.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        busy = statistics.median_low(_sample_running_tasks()) - 1  # without this thread
    except (OSError, ValueError, IndexError):
        busy = 0
    return max(1, (cores or 1) - busy)


def _sample_running_tasks() -> Iterator[int]:
    for _ in range(IDLE_SAMPLES):
        time.sleep(0.005)
        fields = Path("/proc/loadavg").read_text().split()  # 0.52 0.58 0.59 2/467 12345
        yield int(fields[3].partition("/")[0])


def get_prefix_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "treadle" / "prefixes"


def _hash_weights(model: Path) -> str:
    """A hash of the weights' size, start and end, without reading a gigabyte."""
    size = model.stat().st_size
    with model.open("rb") as file:
        head = file.read(1 << 20)
        file.seek(max(0, size - (1 << 20)))
        return hashlib.sha256(f"{size}".encode() + head + file.read()).hexdigest()


def _delete_oldest(folder: Path) -> None:
    files = sorted(folder.glob("*.slot"), key=lambda file: file.stat().st_mtime)
    for file in files[:-MAX_CACHED_PREFIXES]:
        file.unlink(missing_ok=True)


def _load_error(process: subprocess.Popen[bytes], model: Path) -> str:
    assert process.stderr is not None
    lines = process.stderr.read().decode(errors="replace").strip().splitlines()
    process.wait()
    detail = lines[-1] if lines else f"the process exited with code {process.returncode}"
    return f"The embedded model {model.name} could not be loaded: {detail}"


def _kill_process(process: subprocess.Popen[bytes], socket: Path) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(OSError):
        socket.unlink(missing_ok=True)
        socket.parent.rmdir()


def _to_chunk(event: dict[str, Any]) -> CompletionChunk:
    if not event.get("stop"):
        return CompletionChunk(event.get("content", ""))
    timings = event.get("timings", {})
    return CompletionChunk(
        event.get("content", ""),
        is_cut=event.get("stop_type") == "limit",
        prompt_tokens=timings.get("prompt_n", 0),
        cached_tokens=timings.get("cache_n", 0),
        output_tokens=timings.get("predicted_n", 0),
    )


def _map_error(error: dict[str, Any]) -> BadRequest:
    message = str(error.get("message", error))
    if error.get("type") == "exceed_context_size_error":
        text = f"The embedded model's window is full: {message}"
        return ContextTooLong(text, provider="embedded")
    text = f"The embedded model refused the request: {message}"
    return BadRequest(text, provider="embedded", provider_message=message)
