"""The official conformance suite: every scenario for clients, authorization included."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node_programs import ROOT, find_program
from tests.tools.mcp.conformance_server import CALLER

SUITE = "@modelcontextprotocol/conformance/dist/index.js"
SERVER = str(Path(__file__).with_name("conformance_server.py"))
_LINE = re.compile(r"^[✓✗] (\S+): \d+ passed, \d+ failed.*$", re.MULTILINE)
_NAMES = """
initialize tools_call elicitation-sep1034-client-defaults sse-retry
auth/metadata-default auth/metadata-var1 auth/metadata-var2 auth/metadata-var3 auth/basic-cimd
auth/scope-from-www-authenticate auth/scope-from-scopes-supported
auth/scope-omitted-when-undefined auth/scope-step-up auth/scope-retry-limit
auth/token-endpoint-auth-basic auth/token-endpoint-auth-post auth/token-endpoint-auth-none
auth/pre-registration auth/2025-03-26-oauth-metadata-backcompat
auth/2025-03-26-oauth-endpoint-fallback auth/resource-mismatch auth/offline-access-scope
auth/offline-access-not-supported auth/client-credentials-jwt auth/client-credentials-basic
auth/cross-app-access-complete-flow
"""
SCENARIOS = _NAMES.split()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Runs the suite once; the line of each scenario in its summary, by name."""
    suite, place = find_program(SUITE), tmp_path_factory.mktemp("conformance")
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    caller, line = place / "caller.py", place / "socket"
    caller.write_text(CALLER)
    server = subprocess.Popen(
        [sys.executable, SERVER, str(line)], stdout=subprocess.PIPE, env=environment
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        command = f"{sys.executable} -I -S {caller} {line}"
        ran = subprocess.run(
            [*suite, "client", "--command", command, "--suite", "all", "--timeout", "170000"],
            capture_output=True,
            text=True,
            cwd=place,
            env=environment,
            check=False,
        )
    finally:
        server.kill()
        server.communicate()
    text = ran.stdout + ran.stderr
    found = {match[1]: match[0] for match in _LINE.finditer(text)}
    assert found, text[-3000:]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_client_passes_the_scenario(scenario: str, outcomes: dict[str, str]):
    passed, failed = map(int, re.findall(r"(\d+) (?:passed|failed)", outcomes[scenario]))
    assert (passed > 0, failed) == (True, 0), outcomes[scenario]


@pytest.mark.slow
def test_no_scenario_of_the_suite_is_left_out(outcomes: dict[str, str]):
    assert outcomes.keys() == {*SCENARIOS}
