"""The wheel in new environments: the base alone, then each extra.

Everything is installed by uv, from its cache if that has it, and started in real processes.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.install import (
    MAX_MEGABYTES,
    MAX_PACKAGES,
    CannotInstall,
    Installation,
    build_wheel,
    install,
)
from treadle._version import __version__

pytestmark = [pytest.mark.slow]

REAL_ENVIRONMENT = dict(os.environ)  # each test has another home, without the cache of uv
NO_SERVERS = dict.fromkeys(
    ("OLLAMA_HOST", "LMSTUDIO_BASE_URL", "LLAMACPP_BASE_URL", "VLLM_BASE_URL"),
    "http://127.0.0.1:1",
)
LIMITS = f"at most {MAX_PACKAGES} packages and {MAX_MEGABYTES:g} MB"


class Environments:
    """New environments with the wheel of this checkout."""

    def __init__(self, place: Path) -> None:
        self._place = place
        (place / "wheel").mkdir()
        self._wheel = build_wheel(place / "wheel").as_uri()

    def make(self, extra: str = "") -> Installation:
        name = f"treadle[{extra}]" if extra else "treadle"
        folder = self._place / (extra or "base")
        try:
            return install(
                folder,
                f"{name} @ {self._wheel}",
                locked=True,
                compiled=not extra,  # only the size of the base is measured
                env=REAL_ENVIRONMENT,
            )
        except CannotInstall as problem:
            pytest.skip(str(problem))


@pytest.fixture(scope="module")
def environments() -> Iterator[Environments]:
    with tempfile.TemporaryDirectory(prefix="treadle-install-") as name:
        yield Environments(Path(name))


@pytest.fixture(scope="module")
def base(environments: Environments) -> Installation:
    return environments.make()


def run(argv: list[str | Path], **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        argv,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def run_python(installed: Installation, program: str) -> str:
    done = run([installed.python, "-I", "-c", program])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def provider(base: Installation) -> Iterator[dict[str, str]]:
    """A fake provider out of the base, as the variables that lead to it."""
    calls = [
        {"name": "grep", "arguments": {"pattern": "needle"}},
        {"name": "bash", "arguments": {"command": "ls | head -n 3"}},
    ]
    replies = [{"text": "Looking. ", "calls": calls}, {"text": "It is in notes.txt."}]
    script = json.dumps({"replies": replies, "by": "turn"})
    process = subprocess.Popen(
        [base.python, "-I", "-m", "treadle.testing.provider", "--lenient", "--script", script],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        yield {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}
        process.terminate()


# ------------------------------------------------------------------ the base


def test_the_base_is_small(base: Installation):
    found = f"{len(base.packages)} packages, {base.megabytes:.1f} MB: {' '.join(base.packages)}"
    assert len(base.packages) <= MAX_PACKAGES, f"{found}; {LIMITS}"
    assert base.megabytes <= MAX_MEGABYTES, f"{found}; {LIMITS}"


def test_a_scripted_agent_runs_in_the_base(base: Installation):
    program = """
import asyncio
from treadle import Agent, tool
from treadle.models import Say, Scripted

@tool(effect="pure")
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

model = Scripted([Say(calls=[("add", {"a": 2, "b": 3})]), "5"])
print(asyncio.run(Agent(model, tools=[add]).run("2 + 3?")).text)
"""
    assert run_python(base, program) == "5\n"


def test_every_public_name_can_be_imported_in_the_base(base: Installation):
    program = """
import importlib, treadle
modules = [treadle, *(importlib.import_module(f"treadle.{name}")
           for name in ("models", "tools", "permissions", "hooks", "sessions", "testing",
                        "observe", "context"))]
for module in modules:
    for name in getattr(module, "__all__", ()):
        getattr(module, name)
"""
    run_python(base, program)


def test_the_program_of_the_base_says_its_version_and_its_help(base: Installation):
    # In a git checkout the wheel has its commit: test_release.py.
    said = run([base.program, "--version"]).stdout
    assert said.partition(" (commit ")[0].rstrip() == f"treadle {__version__}"
    assert "usage: treadle" in run([base.program, "--help"]).stdout


def test_the_base_answers_a_prompt_and_runs_search_and_shell(
    base: Installation, provider: dict[str, str]
):
    Path("notes.txt").write_text("a needle\n")
    done = run([base.program, "-p", "where?", "--output-format", "stream-json"], **provider)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    results = [event for event in events if event["type"] == "tool_finished"]
    assert [result["is_error"] for result in results] == [False, False]
    assert "notes.txt" in str(results)
    assert "It is in notes.txt." in done.stdout


def test_the_plain_mode_works_in_the_base(base: Installation, provider: dict[str, str]):
    done = subprocess.run(
        [base.program, "--plain"],
        input="1\nwhere?\n",
        env={**os.environ, **provider},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "It is in notes.txt." in done.stdout, done.stderr
    assert done.returncode == 0


# ------------------------------------------------------------------ what the base has not


def sentence(extra: str, feature: str) -> str:
    return f"the extra '{extra}' ({feature}) is not installed: pip install 'treadle[{extra}]'"


def test_the_full_screen_without_its_extra_is_one_sentence(base: Installation):
    master, slave = pty.openpty()
    try:
        done = subprocess.run(
            [base.program],
            env={**os.environ, "TERM": "xterm-256color", "ANTHROPIC_API_KEY": "k"},
            stdin=slave,
            stdout=slave,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(master)
        os.close(slave)
    missing = sentence("tui", "the full screen")
    assert done.stderr == f"treadle: {missing}; --plain and -p work without it\n"
    assert done.returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [["-p", "hi", "--model", "embedded"], ["-p", "hi", "--model", "embedded/smollm2-135m"]],
    ids=["any", "named"],
)
def test_an_embedded_model_without_its_extra_is_one_sentence(
    base: Installation, arguments: list[str]
):
    done = run([base.program, *arguments])
    assert done.stderr == f"treadle: {sentence('embedded', 'embedded models')}\n"
    assert done.returncode == 2


def test_no_weights_are_downloaded_that_cannot_run(base: Installation):
    done = run([base.program, "models", "get", "smollm2-135m"])
    assert done.stderr == f"treadle models: {sentence('embedded', 'embedded models')}\n"
    assert done.returncode == 2


def test_an_editor_without_its_extra_is_one_sentence(base: Installation):
    done = run([base.program, "acp"])
    assert done.stderr == f"treadle acp: {sentence('acp', 'editors')}\n"
    assert done.returncode == 2


def test_without_a_key_the_base_says_what_to_set_and_what_to_install(base: Installation):
    done = run([base.program, "-p", "hi"], **NO_SERVERS)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "ANTHROPIC_API_KEY" in line
    assert "pip install 'treadle[embedded]'" in line


def test_servers_of_tools_without_their_extra_are_named_and_the_run_continues(
    base: Installation, provider: dict[str, str]
):
    home = Path(os.environ["HOME"], ".treadle")
    home.mkdir()
    servers = {"files": {"command": "true"}, "web": {"url": "http://127.0.0.1:9/mcp"}}
    (home / "settings.json").write_text(json.dumps({"mcpServers": servers}))
    done = run([base.program, "-p", "hi"], **provider)
    assert done.returncode == 0
    assert "It is in notes.txt." in done.stdout
    assert f"{sentence('mcp', 'MCP servers')}; not started: files, web" in done.stderr


@pytest.mark.parametrize(
    ("code", "extra", "feature"),
    [
        ("from treadle.observe.telemetry import Telemetry; Telemetry()", "otel", "telemetry"),
        (
            "from treadle.tools.mcp import McpServer; McpServer('a', {'url': 'http://b/'})",
            "mcp",
            "MCP servers",
        ),
        ("from treadle import Agent; Agent('embedded')", "embedded", "embedded models"),
        (
            "import asyncio; from treadle.fleet import open_database; "
            "asyncio.run(open_database('postgresql://a@localhost/b'))",
            "fleet",
            "PostgreSQL",
        ),
        ("import treadle.apps.agui", "agui", "pages that speak AG-UI"),
        ("import treadle.apps.a2a", "a2a", "agents that speak A2A"),
    ],
    ids=["otel", "mcp", "embedded", "fleet", "agui", "a2a"],
)
def test_a_library_call_without_its_extra_raises_one_sentence(
    base: Installation, code: str, extra: str, feature: str
):
    program = f"""
from treadle.core.errors import ConfigError
try:
    {code}
except ConfigError as error:
    print(error)
"""
    assert run_python(base, program) == f"{sentence(extra, feature)}\n"


def test_doctor_names_what_is_not_installed_and_the_command(
    base: Installation, provider: dict[str, str]
):
    done = run([base.program, "doctor"], **provider)
    assert done.returncode == 0, done.stdout
    assert "tui (the full screen), web (the page in a browser), mcp (MCP servers)" in done.stdout
    assert (
        "pip install 'treadle[tui,web,mcp,acp,embedded,otel,fleet,images,agui,a2a]'" in done.stdout
    )


# ------------------------------------------------------------------ the extras


@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("tui", "import treadle.apps.tui.app"),
        ("mcp", "import treadle.tools.mcp.connection, treadle.tools.mcp.http_transport"),
        ("acp", "import treadle.apps.acp.agent"),
        ("embedded", "import xllamacpp; xllamacpp.CommonParams()"),
        (
            "otel",
            "from opentelemetry.sdk.trace import TracerProvider;"
            "from treadle.observe.telemetry import Telemetry; Telemetry(TracerProvider())",
        ),
        ("fleet", "import treadle.sessions.postgres.postgres_store"),
        ("images", "import PIL.Image"),
        ("agui", "import treadle.apps.agui"),
        ("a2a", "import treadle.apps.a2a"),
    ],
)
def test_an_extra_brings_what_its_feature_needs(
    environments: Environments, extra: str, program: str
):
    installed = environments.make(extra)
    run_python(installed, program)


def test_all_brings_every_extra(environments: Environments, provider: dict[str, str]):
    installed = environments.make("all")
    assert {"textual", "mcp", "xllamacpp", "opentelemetry-sdk"} <= {*installed.packages}
    assert "all are installed" in run([installed.program, "doctor"], **provider).stdout
