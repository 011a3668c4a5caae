"""The parent's side of the weights: starts the host process and speaks to it.

    Server.open()        start and load, once, off the event loop
    Server.complete()    one completion, streamed; leaving the iterator stops the generation
    Server.bake()        keep a fixed prefix's state on disk, or bring it back
    Server.count()       tokens of a text

It knows nothing of tools or transcripts: that is prompt.py's. Below it is server_process.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import AsyncGenerator
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.errors import (
    BadRequest,
    ContextTooLong,
    Overloaded,
    StreamBroken,
    UnknownModel,
)

SERVER_SCRIPT = Path(__file__).with_name("server_process.py")
MAX_CACHED_PREFIXES = 8


class CompletionChunk(msgspec.Struct, frozen=True, gc=False):
    """Some generated text; the last one says why it ended, and what was counted."""

    text: str
    is_last: bool = False
    is_cut: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class LlamaServer:
    """One loaded model. Serves many streams: the host answers them one after the other."""

    def __init__(self, model: Path, *, window: int, threads: int | None, batch: int = 64) -> None:
        self.model = model
        self.window = window
        self._threads = threads
        self._batch = batch
        self._process: subprocess.Popen[bytes] | None = None
        self._socket = ""
        self._lock = threading.Lock()
        self._waiting_openers = 0
        self._loaded_prefix = ""
        self._digest = ""

    async def open(self) -> None:
        """Start the host and load the weights; at once if they are loaded."""
        if self._process is not None and self._process.poll() is None and self._socket:
            return
        self._waiting_openers += 1
        try:
            await asyncio.to_thread(self._start)
        except asyncio.CancelledError:
            if self._waiting_openers == 1 and self._process is not None and not self._socket:
                self._process.kill()  # nobody waits for it any more; ends the thread as well
            raise
        finally:
            self._waiting_openers -= 1

    def _start(self) -> None:
        with self._lock:
            if self._process is not None and self._process.poll() is None and self._socket:
                return
            self._socket = self._loaded_prefix = ""
            socket = Path(tempfile.mkdtemp(prefix="treadle-")) / "model.sock"
            slots = get_prefix_dir()
            slots.mkdir(parents=True, exist_ok=True)
            settings = {
                "model": str(self.model.resolve()),
                "socket": str(socket),
                "window": self.window,
                "slots": f"{slots}{os.sep}",
                "batch": self._batch,
                "threads": self._threads or count_idle_cores(),
            }
            host = subprocess.Popen(
                # -I: nothing in the folder that we work in can stand in for a module.
                [sys.executable, "-I", str(SERVER_SCRIPT), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # an interrupt in the terminal is the parent's to handle
                cwd="/",
            )
            self._process = host
            weakref.finalize(self, _kill_process, host, socket)
            assert host.stdout is not None
            ready = host.stdout.readline()
            if not ready:
                reason = _load_error(host, self.model)
                _kill_process(host, socket)
                raise UnknownModel(reason, provider="embedded")
            self._digest = _hash_weights(self.model)
            self._socket = str(socket)

    async def aclose(self) -> None:
        host, socket, self._process, self._socket = self._process, self._socket, None, ""
        if host is not None:
            await asyncio.to_thread(_kill_process, host, Path(socket))

    async def complete(self, prompt: str, **options: Any) -> AsyncGenerator[CompletionChunk, None]:
        """Generate from here on. Closing the iterator closes the connection, and that stops it."""
        body = {"prompt": prompt, "stream": True, "cache_prompt": True, **options}
        async with contextlib.aclosing(self._stream_post("/completion", body)) as chunks:
            finished = False
            async for event in _parse_events(chunks):
                if "error" in event:
                    raise _map_error(event["error"])
                finished = bool(event.get("stop"))
                yield _to_chunk(event)
            if not finished:
                raise StreamBroken("The embedded model stopped half-way.", provider="embedded")

    async def complete_text(self, prompt: str, **options: Any) -> CompletionChunk:
        """A whole completion at once."""
        said: list[str] = []
        async with contextlib.aclosing(self.complete(prompt, **options)) as pieces:
            async for piece in pieces:
                said.append(piece.text)
        return msgspec.structs.replace(piece, text="".join(said))

    async def load_prefix(self, prefix: str) -> None:
        """Have this prefix's state in memory: from disk, or computed once and then kept there."""
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
        """Whether baking this prefix takes no time."""
        await self.open()
        name = self._prefix_name(prefix)
        return self._loaded_prefix == name or await asyncio.to_thread(
            (get_prefix_dir() / name).exists
        )

    async def count_tokens(self, text: str) -> int:
        answer = await self._post_json("/tokenize", {"content": text, "parse_special": True})
        return len(answer["tokens"])

    def _prefix_name(self, prefix: str) -> str:
        made_of = (self._digest, metadata.version("xllamacpp"), str(self.window), prefix)
        return hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:32] + ".slot"

    async def _run_slot_action(self, action: str, name: str) -> bool:
        if action == "restore" and not (get_prefix_dir() / name).exists():
            return False
        answer = await self._post_json(f"/slots/0?action={action}", {"filename": name})
        return "error" not in answer

    async def _post_json(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with contextlib.aclosing(self._stream_post(path, body)) as chunks:
            answer: dict[str, Any] = json.loads(b"".join([chunk async for chunk in chunks]))
            return answer

    async def _stream_post(self, path: str, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        await self.open()
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket, limit=1 << 20)
        except OSError as error:
            raise Overloaded(
                f"The embedded model's process is gone ({error}).", provider="embedded"
            ) from error
        try:
            data = json.dumps(body).encode()
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: embedded\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
                + data
            )
            async for chunk in _read_body(reader):
                yield chunk
        except (OSError, asyncio.IncompleteReadError) as error:
            raise StreamBroken(
                "The embedded model's process ended half-way.", provider="embedded"
            ) from error
        finally:
            writer.close()


def count_idle_cores() -> int:
    """How many cores nobody uses: two threads on one busy core are slower than one."""
    cores = os.cpu_count() or 1
    try:
        busy = os.getloadavg()[0]
    except OSError:
        busy = 0.0
    return max(1, min(cores, round(cores - busy)))


def get_prefix_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "treadle" / "prefixes"


def _hash_weights(model: Path) -> str:
    """Tells weights apart without reading a gigabyte: size, beginning and end."""
    size = model.stat().st_size
    with model.open("rb") as file:
        head = file.read(1 << 20)
        file.seek(max(0, size - (1 << 20)))
        return hashlib.sha256(f"{size}".encode() + head + file.read()).hexdigest()


def _delete_oldest(folder: Path) -> None:
    kept = sorted(folder.glob("*.slot"), key=lambda file: file.stat().st_mtime)
    for file in kept[:-MAX_CACHED_PREFIXES]:
        file.unlink(missing_ok=True)


def _load_error(process: subprocess.Popen[bytes], model: Path) -> str:
    assert process.stderr is not None
    said = process.stderr.read().decode(errors="replace").strip().splitlines()
    process.wait()
    detail = said[-1] if said else f"it ended with code {process.returncode}"
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


async def _read_body(reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"transfer-encoding: chunked" in head:
        while size := int((await reader.readline()).strip() or b"0", 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        return
    length = int(head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
    yield await reader.readexactly(length)


async def _parse_events(
    chunks: AsyncGenerator[bytes, None],
) -> AsyncGenerator[dict[str, Any], None]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
            elif line.startswith(b"error: "):
                yield {"error": json.loads(line[7:])}
    if rest.startswith(b"{"):  # a refusal is not a stream
        yield json.loads(rest)


def _to_chunk(event: dict[str, Any]) -> CompletionChunk:
    if not event.get("stop"):
        return CompletionChunk(event.get("content", ""))
    timings = event.get("timings", {})
    return CompletionChunk(
        event.get("content", ""),
        is_last=True,
        is_cut=event.get("stop_type") == "limit",
        prompt_tokens=timings.get("prompt_n", 0),
        cached_tokens=timings.get("cache_n", 0),
        output_tokens=timings.get("predicted_n", 0),
    )


def _map_error(error: dict[str, Any]) -> BadRequest:
    said = str(error.get("message", error))
    if error.get("type") == "exceed_context_size_error":
        return ContextTooLong(f"The embedded model's window is full: {said}", provider="embedded")
    return BadRequest(f"The embedded model refused the request: {said}", provider="embedded")
