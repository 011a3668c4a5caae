"""Values that are to stay unknown: not in what a command's output shows, nor in its side file."""
# ruff: noqa: ASYNC240 (files are how a test and a command meet)

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions
from treadle.workspace.processes import HEAD_BYTES
from treadle.workspace.supervisor.output_buffer import REDACTED, OutputBuffer, StreamRedactor

SECRET = "sk-ant-api03-our-own-key-0123456789abcdef"
few = st.binary(min_size=1, max_size=5).map(lambda one: bytes(b"ab"[byte % 2] for byte in one))


@given(st.lists(few, min_size=1, max_size=4), st.lists(st.binary(max_size=9), max_size=9))
def test_a_value_is_found_wherever_the_stream_was_cut(
    secrets: list[bytes], raw: list[bytes]
) -> None:
    pieces = [bytes(b"abc"[byte % 3] for byte in piece) for piece in raw]
    redactor = StreamRedactor(secrets)
    redacted = b"".join(redactor.redact(piece) for piece in pieces) + redactor.redact(
        b"", last=True
    )
    longest_first = b"|".join(map(re.escape, sorted(secrets, key=len, reverse=True)))
    assert redacted == re.sub(longest_first, REDACTED, b"".join(pieces))


def test_what_is_no_beginning_of_a_value_is_passed_on_at_once() -> None:
    redactor = StreamRedactor([b"secret-value"])
    assert redactor.redact(b"listening on port 80") == b"listening on port 80"
    assert redactor.redact(b" sec") == b" "
    assert redactor.redact(b"onds\n") == b"seconds\n"


async def opened(place: Path) -> LocalWorkspace:
    (place / "ws").mkdir()
    (place / "ws" / "k").write_text(SECRET)
    options = WorkspaceOptions(sandbox="off", outputs_dir=place / "out", secrets=(SECRET,))
    return await LocalWorkspace.open(place / "ws", options)


async def test_a_long_output_is_cut_and_kept_without_it(tmp_path: Path) -> None:
    workspace = await opened(tmp_path)
    zeros = "head -c %d /dev/zero | tr '\\0' x"
    for before in (HEAD_BYTES - 60, HEAD_BYTES - 20, HEAD_BYTES - 5, 300_000):
        command = f"{zeros % before}; cat k; {zeros % 400_000}; cat k; echo end"
        done = await workspace.run(command)
        kept = Path(done.full_output).read_text()
        assert "sk-ant" not in done.output + kept
        assert "abcdef" not in done.output + kept
        assert kept.count("[redacted]") == 2
        assert done.output.endswith("[redacted]end\n")
    await workspace.aclose()


async def test_a_value_that_is_printed_in_two_goes_is_found(tmp_path: Path) -> None:
    workspace = await opened(tmp_path)
    progress: list[str] = []
    command = "head -c 20 k; sleep 0.3; tail -c +21 k"
    done = await workspace.run(command, on_output=progress.append)
    assert done.output == "[redacted]"
    assert "sk-ant" not in "".join(progress)
    await workspace.aclose()


async def test_the_file_of_a_command_in_the_background_never_holds_it(tmp_path: Path) -> None:
    workspace = await opened(tmp_path)
    running = await workspace.start("cat k; echo; echo on; cat k")
    done = await running.wait()
    assert done.output == "[redacted]\non\n[redacted]"
    assert SECRET not in "".join(file.read_text() for file in (tmp_path / "out").iterdir())
    assert running.output() == done.output
    await workspace.aclose()


def test_beyond_what_the_file_takes_only_the_end_is_looked_through(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    secret = SECRET.encode()
    buffer = OutputBuffer(reading, 100, 100, str(tmp_path / "side"), 1_000, False, [secret])
    printed = 0
    for padding in (900, 5_000, 241, 5_000, 260):
        data = b"x" * padding + secret + b"y" * 100 + secret[:30]
        buffer.append(data)
        buffer.append(secret[30:] + b"z" * 20)
        printed += padding + 100 + 20
    report: Any = buffer.report()
    assert b"our-own" not in (tmp_path / "side").read_bytes() + report["head"] + report["tail"]
    assert report["tail"].endswith(b"y" * 69 + b"[redacted]" + b"z" * 20)
    assert report["total"] == pytest.approx(printed, rel=0.1)
    os.close(buffer.file_fd)
    os.close(reading)
    os.close(writing)
