"""A newcomer without a key: which model answers, and how a better one comes."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.apps.program import finish, run, start
from treadle.apps.console import embedded_setup
from treadle.apps.settings.settings import Settings
from treadle.models.embedded import Weights, locate_weights, weights
from treadle.models.registry import KNOWN_PROVIDERS
from treadle.models.registry.default_model import DefaultModel

FILE = b"weights" * 1_000
NO_MODEL = DefaultModel("embedded", "no key", "none", is_available=False)


class _Hub(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(FILE)))
        self.end_headers()
        self.wfile.write(FILE)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def better(monkeypatch: pytest.MonkeyPatch) -> Iterator[Weights]:
    """One known embedded model, which a hub on loopback has and this machine has not."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    digest = hashlib.sha256(FILE).hexdigest()
    url = f"http://127.0.0.1:{server.server_port}/better.gguf"
    made = Weights("better", "Better", "better.gguf", len(FILE), digest, "MIT", "a note", url=url)
    for name, value in (("QWEN_CODER", made), ("SMOLLM2", made), ("ALL_WEIGHTS", (made,))):
        monkeypatch.setattr(weights, name, value)
    monkeypatch.setattr(weights, "has_engine", lambda: True)

    async def find() -> DefaultModel:
        return NO_MODEL

    monkeypatch.setattr("treadle.models.registry.default_model.find_default_model", find)
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("name", ["embedded/better", "embedded", ""])
async def test_an_embedded_model_that_is_needed_and_missing_is_downloaded(better, name, capsys):
    await embedded_setup.download_named(Settings(model=name))
    assert locate_weights(better) is not None
    assert "Downloading Better, 7.0 KB, MIT." in capsys.readouterr().err


def test_a_key_or_the_better_model_is_offered_once_and_enter_downloads_nothing(better, capsys):
    questions: list[str] = []

    def ask(question: str) -> str:
        questions.append(question)
        return ""

    embedded_setup.offer_better(ask)
    assert questions == [
        "k: give a key, d: download Better (7.0 KB, about 1 minute at 40 Mbit/s), Enter: neither: "
    ]
    assert locate_weights(better) is None
    shown = capsys.readouterr().out
    for words in ("No key of a provider is set", "treadle login", "treadle tour"):
        assert words in shown
    embedded_setup.offer_better(ask)
    assert len(questions) == 1


def test_d_downloads_the_better_model(better):
    embedded_setup.offer_better(lambda _: "d")
    assert locate_weights(better) is not None


def test_another_letter_is_not_taken_for_no(better):
    answers = iter(("download", "D"))
    embedded_setup.offer_better(lambda _: next(answers))
    assert locate_weights(better) is not None


def test_who_says_no_is_not_asked_again(better, capsys):
    embedded_setup.offer_better(lambda _: "n")
    assert locate_weights(better) is None
    assert "Later: treadle login, or treadle models get better" in capsys.readouterr().out

    def ask(_: str) -> str:
        raise AssertionError("asked twice")

    embedded_setup.offer_better(ask)


class _SilentIndex(BaseHTTPRequestHandler):
    """A package index that never answers."""

    def do_GET(self) -> None:
        self.server.asked.set()  # type: ignore[attr-defined]
        self.server.over.wait()  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        pass


async def test_a_download_that_is_terminated_leaves_no_folder_behind():
    index = ThreadingHTTPServer(("127.0.0.1", 0), _SilentIndex)
    index.asked, index.over = threading.Event(), threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=index.serve_forever, args=(0.01,))
    thread.start()
    refused = "http://127.0.0.1:9"
    try:
        process = await start(
            None,
            *("models", "get", "qwen2.5-coder-1.5b"),
            PIP_INDEX_URL=f"http://127.0.0.1:{index.server_port}/simple",
            HTTPS_PROXY=refused,
            https_proxy=refused,
            NO_PROXY="127.0.0.1",
        )
        await asyncio.to_thread(index.asked.wait)  # type: ignore[attr-defined]
        [folder] = weights.get_weights_dir().glob("*.parts-*")
        process.terminate()
        ran = await finish(process)
    finally:
        index.over.set()  # type: ignore[attr-defined]
        index.shutdown()
        thread.join()
        index.server_close()
    assert (ran.code, folder.exists()) == (143, False)
    assert not list(weights.get_weights_dir().glob("*.lock"))


async def test_without_a_key_the_tiny_model_answers_and_stderr_names_it_and_the_better_one():
    if locate_weights(weights.SMOLLM2) is None:
        pytest.skip("needs the weights of the tiny model")
    ran = await run(None, "-p", "say hello")
    assert ran.code == 0
    assert ran.out.strip()
    assert "embedded/smollm2-135m" in ran.err
    estimate = "(1.1 GB, about 4 minutes at 40 Mbit/s)"
    for words in (
        f"treadle models get qwen2.5-coder-1.5b {estimate}",
        "treadle login",
        "treadle tour",
    ):
        assert words in ran.err
    assert (await run(None, "-p", "say hello", "--quiet")).err == ""
    assert (await run(None, "-p", "How do I reverse a list in Python?")).code == 6


def test_a_key_without_a_default_model_leaves_the_choice_to_the_embedded_one(monkeypatch):
    for name in [variable for one in KNOWN_PROVIDERS.values() for variable in one.key_variables]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN", "of downloads")
    assert embedded_setup.is_maybe_needed(Settings())
    monkeypatch.setenv("XAI_API_KEY", "k")
    assert not embedded_setup.is_maybe_needed(Settings())
