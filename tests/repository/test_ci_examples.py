"""The action and the workflows that users copy: read by actionlint, and their commands run."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]

from tests.apps.program import PROGRAM, environment, run
from tests.node_programs import ROOT
from tests.repository.test_workflows import lint
from treadle.sessions.library import Library
from treadle.testing.provider import FakeReply, ProviderServer

WORKFLOWS = ROOT / "examples/workflows"
ACTION = WORKFLOWS / "review/action.yml"
GITLAB = WORKFLOWS / "review.gitlab-ci.yml"
INLINE = {
    "file": "add.py",
    "line": 2,
    "severity": "error",
    "title": "subtracts",
    "detail": "It's -1.\nIt has to be 3.",
}
WHOLE = {**INLINE, "line": 0, "severity": "note", "title": "no test"}
SHA = {"base_commit_sha": "base", "start_commit_sha": "start", "head_commit_sha": "head"}
# A program that records what it is told, and refuses what REFUSED names.
RECORDER = """#!/bin/sh
case "$*" in */versions) printf '%s' '[VERSIONS]'; exit 0;; esac
printf '%s ' "$@" >> asked; cat > body; cat body >> asked; printf '\\0' >> asked
[ -z "$REFUSED" ] || ! grep -q "$REFUSED" body
"""

needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")


class Asked(NamedTuple):
    words: str
    body: dict[str, Any]


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found


def answer(*findings: dict[str, object]) -> FakeReply:
    return FakeReply(json.dumps({"summary": "It was read.", "findings": findings}))


async def run_script(server: ProviderServer, script: str, **variables: str) -> int:
    """Run a step as the runners do, with our program and recorders for those of the hosts."""
    programs = Path("programs")
    programs.mkdir(exist_ok=True)
    starter = f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n'
    recorder = RECORDER.replace("VERSIONS", json.dumps(SHA))
    for name, text in (("treadle", starter), ("gh", recorder), ("curl", recorder)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    env = environment(server, **variables)
    env["PATH"] = f"{programs.absolute()}:{env['PATH']}"
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    process = await asyncio.create_subprocess_exec(*command, env=env)
    return await process.wait()


def list_asked() -> list[Asked]:
    asked = Path("asked").read_text().split("\0")[:-1]
    parts = [one.partition("{") for one in asked]
    return [Asked(words, json.loads(brace + body)) for words, brace, body in parts]


async def run_action(server: ProviderServer, **variables: str) -> tuple[int, dict[str, str]]:
    """Its review, and its comments if there is a report; the exit code and the outputs."""
    _, review, post, _ = read(ACTION)["runs"]["steps"]
    given = {"RANGE": "HEAD~1..HEAD", "MODEL": "", "MAX_COST": "1", "MAX_TIME": "15m"}
    given |= {"PULL": "repos/a/b/pulls/1", "COMMIT": "abc", "RUNNER_TEMP": str(Path.cwd())}
    given |= {"GITHUB_OUTPUT": str(Path("outputs").absolute()), **variables}
    Path("outputs").unlink(missing_ok=True)
    code = await run_script(server, review["run"], **given)
    outputs = dict(line.split("=", 1) for line in Path("outputs").read_text().splitlines())
    if "report" in outputs:
        assert await run_script(server, post["run"], **given, REPORT=outputs["report"]) == 0
    return code, outputs


@pytest.fixture
def repository(own_place: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *words], check=True, capture_output=True)

    git("init", "-b", "main")
    for text in ("a + b", "a - b"):
        Path("add.py").write_text(f"def add(a, b):\n    return {text}\n")
        git("add", "add.py")
        git("commit", "-m", text)


def test_actionlint_finds_nothing_in_the_examples(tmp_path: Path):
    workflows = [file for file in sorted(WORKFLOWS.glob("*.yml")) if file != GITLAB]
    assert lint(tmp_path, *workflows) == []


def test_the_steps_of_the_action_are_as_in_a_workflow_and_its_inputs_are_declared(tmp_path: Path):
    action, workflow = read(ACTION), read(WORKFLOWS / "review.yml")
    [job] = workflow["jobs"].values()
    assert job["steps"][-1]["uses"] == "./.github/actions/review"
    assert set(job["steps"][-1]["with"]) <= set(action["inputs"])
    job["steps"][-1:] = action["runs"]["steps"]
    declared = {name: {**one, "required": False} for name, one in action["inputs"].items()}
    inputs = {name: {**one, "type": "string"} for name, one in declared.items()}
    whole = {"on": {"workflow_call": {"inputs": inputs}, "pull_request": {}}, "jobs": {"one": job}}
    file = tmp_path / "whole.yml"
    file.write_text(yaml.safe_dump(whole))
    assert lint(tmp_path, file) == []


@needs_jq
@pytest.mark.usefixtures("repository")
async def test_the_action_posts_the_findings_at_their_lines():
    async with ProviderServer([answer(INLINE, WHOLE), answer(INLINE)]) as server:
        assert await run_action(server) == (
            0,
            {"code": "1", "report": str(Path("treadle-review.json").absolute())},
        )
        refused = await run_action(server, REFUSED="comments")
    assert refused[1]["code"] == "1"
    first, again, text = list_asked()
    assert "repos/a/b/pulls/1/reviews" in first.words
    [comment] = first.body["comments"]
    assert (comment["path"], comment["line"], first.body["commit_id"]) == ("add.py", 2, "abc")
    assert comment["body"] == f"**error**: subtracts\n\n{INLINE['detail']}"
    assert first.body["body"].startswith("It was read.\n\n**note**: add.py: no test\n")
    assert "comments" in again.body
    assert text.body["body"].startswith("add.py:2: error: subtracts\n")


@needs_jq
@pytest.mark.usefixtures("repository")
async def test_the_action_fails_without_a_review_and_passes_without_a_change():
    async with ProviderServer([]) as server:
        assert await run_action(server, MODEL="nothing/none") == (2, {"code": "2"})
        assert not Path("asked").exists()
        code, outputs = await run_action(server, RANGE="HEAD..HEAD")
    assert (code, outputs["code"]) == (0, "0")


@needs_jq
@pytest.mark.usefixtures("repository")
async def test_the_job_of_gitlab_posts_threads_and_comments_where_a_line_is_refused():
    job = read(GITLAB)["review"]
    given = {
        "CI_API_V4_URL": "https://host/api/v4",
        "CI_PROJECT_ID": "7",
        "CI_MERGE_REQUEST_IID": "1",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": "HEAD~1",
        "CI_COMMIT_SHA": "HEAD",
        "REVIEW_TOKEN": "secret",
    }
    [script] = job["script"]
    async with ProviderServer([answer(INLINE, WHOLE), answer()]) as server:
        assert await run_script(server, script, **given, REFUSED='"new_line": 0') == 1
        assert await run_script(server, script, **given) == 0
    assert job["allow_failure"] == {"exit_codes": 1}
    thread, refused, comment = list_asked()
    assert "https://host/api/v4/projects/7/merge_requests/1/discussions" in thread.words
    assert thread.body["body"] == f"**error**: add.py:2: subtracts\n\n{INLINE['detail']}"
    position = {"position_type": "text", "new_path": "add.py", "old_path": "add.py", "new_line": 2}
    shas = {"base_sha": "base", "start_sha": "start", "head_sha": "head"}
    assert thread.body["position"] == {**position, **shas}
    assert refused.body["position"]["new_line"] == 0
    assert comment.words.endswith("/notes ")
    assert set(comment.body) == {"body"}


async def test_the_workflow_of_recorded_sessions_tests_those_of_the_repository():
    async with ProviderServer([FakeReply("Hello."), FakeReply("Bye.")]) as server:
        for text in ("one", "two"):
            ran = await run(server, "-p", text)
            assert ran.code == 0, ran.err
    for number, session_dir in enumerate(Library().list_session_dirs()):
        shutil.copytree(session_dir, f"tests/sessions/{number}")
    jobs = read(WORKFLOWS / "test.yml")["jobs"]
    async with ProviderServer([]) as server:
        assert await run_script(server, jobs["recorded"]["steps"][-1]["run"]) == 0
    assert server.requests == []
