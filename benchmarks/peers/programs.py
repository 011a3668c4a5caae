"""Programs for the terminal: how each is started against the server, and what a run costs.

Each has a home folder and a project folder of its own, which are new in every comparison, so that
no settings of the user are read or changed. All of them may run commands without a question and
without a sandbox, except where the name says so.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from benchmarks.measure import resident_memory  # noqa: E402
from benchmarks.peers.environments import Environments, NotInstalled  # noqa: E402

PROMPT = "say hi"
LIMIT = 90.0
QUIET = {
    "CI": "1",
    "NO_COLOR": "1",
    "DO_NOT_TRACK": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "ANTHROPIC_API_KEY": "k",
    "OPENAI_API_KEY": "k",
    "BENCHMARK_KEY": "k",
}


class Invocation(NamedTuple):
    """How to start a program: its file, the arguments of a run, what a resume adds, variables."""

    program: list[str]
    run: list[str]
    resume: list[str] | None
    variables: Mapping[str, str] = {}


class Place(NamedTuple):
    """Where a program runs: its home, the project, and the URL of the server."""

    home: Path
    project: Path
    url: str

    def write(self, name: str, text: str) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def bare_script(made: Environments, place: Place) -> Invocation:
    script = str(HERE.parent / "bare_agent.py")
    return Invocation([str(made.python("raw_httpx")), "-I", script], [place.url, "--httpx"], None)


def treadle(made: Environments, place: Place, sandbox: str = "off") -> Invocation:
    program = [str(made.python("treadle").with_name("treadle"))]
    run = ["-p", PROMPT, "--model", "anthropic/claude-sonnet-5-5"]
    run += ["--permission-mode", "bypass", "--sandbox", sandbox]
    return Invocation(program, run, [*run, "--continue"], {"ANTHROPIC_BASE_URL": place.url})


def treadle_sandboxed(made: Environments, place: Place) -> Invocation:
    return treadle(made, place, "required")


def claude(made: Environments, place: Place) -> Invocation:
    program = [str(made.program("claude") / "node_modules/.bin/claude")]
    run = ["-p", PROMPT, "--model", "claude-sonnet-5-5", "--allowedTools", "Bash"]
    return Invocation(program, run, [*run, "--continue"], {"ANTHROPIC_BASE_URL": place.url})


def codex(made: Environments, place: Place) -> Invocation:
    folder = made.program("codex") / "node_modules/@openai"
    found = sorted(folder.glob("codex-linux-*/vendor/*/bin/codex"))
    if not found:
        raise NotInstalled("codex has no program for this machine")
    place.write(
        ".codex/config.toml",
        f"""model = "loopback"
model_provider = "loopback"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.loopback]
name = "loopback"
base_url = "{place.url}/v1"
env_key = "BENCHMARK_KEY"
wire_api = "responses"
[projects."{place.project}"]
trust_level = "trusted"
""",
    )
    run = ["exec", "--skip-git-repo-check", PROMPT]
    resume = ["exec", "--skip-git-repo-check", "resume", "--last", PROMPT]
    return Invocation([str(found[0])], run, resume, {"CODEX_HOME": str(place.home / ".codex")})


def opencode(made: Environments, place: Place) -> Invocation:
    folder = made.program("opencode") / "node_modules"
    found = sorted(folder.glob("opencode-linux-*/bin/opencode"))
    if not found:
        raise NotInstalled("opencode has no program for this machine")
    limit = {"context": 200_000, "output": 8_000}
    model = {"name": "loopback", "tool_call": True, "limit": limit}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "loopback",
        "options": {"baseURL": place.url + "/v1", "apiKey": "k"},
        "models": {"loopback": model},
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "loopback/loopback",
        "small_model": "loopback/loopback",
        "permission": {"bash": "allow", "edit": "allow"},
        "provider": {"loopback": provider},
    }
    place.write(".config/opencode/opencode.json", json.dumps(settings))
    variables = {"XDG_CONFIG_HOME": str(place.home / ".config")}
    return Invocation([str(found[0])], ["run", PROMPT], ["run", "--continue", PROMPT], variables)


def aider(made: Environments, place: Place) -> Invocation:
    program = [str(made.python("aider").with_name("aider"))]
    run = ["--message", PROMPT, "--model", "openai/loopback", "--yes-always", "--map-tokens", "0"]
    off = "analytics check-update show-release-notes show-model-warnings git gitignore pretty"
    run += [f"--no-{name}" for name in [*off.split(), "suggest-shell-commands", "auto-lint"]]
    return Invocation(program, run, None, {"OPENAI_API_BASE": place.url + "/v1"})


class Program(NamedTuple):
    title: str
    prepare: Callable[[Environments, Place], Invocation]
    has_shell: bool = True


BASELINE = "bare_script"
CHARTED = ("treadle", "treadle_sandboxed", "claude", "codex", "opencode")
ALL_EXTRAS = "treadle_all"  # only its size is measured: it is the same program
PROGRAMS = {
    "bare_script": Program("script by hand, httpx", bare_script),
    "treadle": Program("Treadle", treadle),
    "treadle_sandboxed": Program("Treadle, in its sandbox", treadle_sandboxed),
    "claude": Program("Claude Code", claude),
    "codex": Program("Codex", codex),
    "opencode": Program("opencode", opencode),
    "aider": Program("aider", aider, has_shell=False),
}


def measure(argv: list[str], place: Place, variables: Mapping[str, str]) -> dict[str, Any]:
    """Seconds, CPU and memory of a program and all that it started, from start to exit."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = {**kept, **QUIET, "HOME": str(place.home), **variables}
    with tempfile.TemporaryFile() as output:  # not a pipe: a process left behind could keep it open
        began = time.perf_counter()
        process = subprocess.Popen(
            argv, cwd=place.project, env=environment, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        watcher = Watcher(process.pid)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        figures = {"wall": wall, "cpu": used.ru_utime + used.ru_stime, "peak_mb": watcher.stop()}
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode == 0:
            return figures
        output.seek(0)
        text = output.read()[-300:].decode("utf-8", "replace").strip()
        return {**figures, "failed": f"exit code {process.returncode}: {text}"}


class Watcher:
    """Samples the memory of a process and all below it; ends them when they take too long."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak_kb = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        end = time.monotonic() + LIMIT
        while not self._over.wait(0.02):
            self._peak_kb = max(self._peak_kb, resident_memory(self._pid))
            if time.monotonic() > end:
                os.killpg(self._pid, signal.SIGKILL)
                return

    def stop(self) -> float:
        """The highest MB seen."""
        self._over.set()
        self._thread.join()
        return self._peak_kb / 1024
