"""The official conformance suite: every scenario for clients, authorization included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.node_programs import ROOT, find_program

SUITE = "@modelcontextprotocol/conformance/dist/index.js"
CLIENT = Path(__file__).with_name("conformance_client.py")
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


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_client_passes_the_scenario(scenario: str, own_place: Path):
    client = f"{sys.executable} {CLIENT}"
    ran = subprocess.run(
        [*find_program(SUITE), "client", "--command", client, "--scenario", scenario],
        capture_output=True,
        text=True,
        cwd=own_place,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert ", 0 failed" in ran.stdout + ran.stderr


def test_no_scenario_of_the_suite_is_left_out():
    ran = subprocess.run(
        [*find_program(SUITE), "list", "--client"], capture_output=True, text=True, check=False
    )
    listed = [line.split()[1] for line in ran.stdout.splitlines() if line.startswith("  - ")]
    clients = ran.stdout[ran.stdout.find("Client scenarios") :]
    assert {name for name in listed if f"- {name} " in clients} == set(SCENARIOS)
