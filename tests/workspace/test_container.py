"""Commands in real containers of podman; without it these tests are skipped with the reason."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from treadle import coding_agent
from treadle.apps.fleet.folders.workspaces import RunWorkspaces
from treadle.apps.fleet.worker import Worker
from treadle.core.errors import ConfigError, WorkspaceError
from treadle.fleet import ContainerOptions, ContainerWorkspace, FleetTask, open_database
from treadle.models import Say, Scripted
from treadle.permissions.ruleset.path_patterns import compile_path_pattern
from treadle.testing.conformance.workspace import WORKSPACE_PROMISES
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer, ReceivedRequest
from treadle.workspace.command_limits import FileDenials
from treadle.workspace.container_mounts import ContainerMounts

IMAGE = "localhost/treadle-test:1"
# Some machines for tests have old control groups and low limits, which podman has to be told.
CONFIGS = (
    "",
    '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]\n'
    '[engine]\nruntime = "runc"\n',
)


def make_image() -> bytes:
    """An image of nothing but busybox."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    names = subprocess.check_output([busybox, "--list"], text=True).split()
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for folder in ("bin", "tmp", "etc", "run"):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        tar.add(busybox, "bin/busybox")
        for name in names:
            if name != "busybox":
                member = tarfile.TarInfo(f"bin/{name}")
                member.type, member.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(member)
    return data.getvalue()


@cache
def find_config() -> tuple[str | None, str]:
    """The settings with which podman runs a container here; None, and why it does not."""
    problem = "podman and busybox are not installed (apt install podman busybox-static)"
    if shutil.which("podman") is None or shutil.which("busybox") is None:
        return None, problem
    for config in CONFIGS:
        path = Path(os.environ["HOME"]) / "containers.conf"
        path.write_text(config)
        environment = {**os.environ, "CONTAINERS_CONF": str(path)} if config else {**os.environ}
        load = ["podman", "import", "--change", "ENV PATH=/bin", "-", IMAGE]
        subprocess.run(load, input=make_image(), env=environment, capture_output=True, check=False)
        run = ["podman", "run", "--rm", "--network", "none", IMAGE, "/bin/true"]
        ran = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
        if ran.returncode == 0:
            return config, ""
        problem = f"podman cannot run a container here: {ran.stderr.strip()[-200:]}"
    return None, problem


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ContainerOptions]:
    config, problem = find_config()
    if config is None:
        pytest.skip(problem)
    if config:
        (tmp_path / "containers.conf").write_text(config)
        monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    label = f"treadle-test={tmp_path}"
    yield ContainerOptions(image=IMAGE, program="podman", arguments=("--label", label))
    left = subprocess.check_output(
        ["podman", "ps", "--all", "--filter", f"label={label}", "--format", "{{.Names}}"], text=True
    )
    assert left == "", "no container is left"


@pytest.mark.slow
@pytest.mark.parametrize("promise", WORKSPACE_PROMISES, ids=lambda promise: promise.__name__)
async def test_a_container_workspace_keeps_the_promise(promise, options, tmp_path):
    count = 0

    def make() -> ContainerWorkspace:
        nonlocal count
        count += 1
        folder = tmp_path / f"work{count}"
        folder.mkdir()
        return ContainerWorkspace(folder, options)

    await promise(make)


async def test_a_command_sees_the_folder_and_nothing_else_of_the_machine(options, tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "work").mkdir()
    workspace = ContainerWorkspace(tmp_path / "work", options)
    try:
        done = await workspace.run("touch made; cat ../secret.txt; ls /")
        assert "No such file" in done.output
        assert (tmp_path / "work/made").exists()
        assert "home" not in done.output.split()
        done = await workspace.run("wget -T 1 -q http://127.0.0.1:1/ || echo no network")
        assert "no network" in done.output
    finally:
        await workspace.aclose()


async def test_the_commands_and_the_check_of_a_task_with_an_image_are_in_containers(
    options, tmp_path, monkeypatch
):
    def reply(request: ReceivedRequest) -> FakeReply:
        if len(request.json["messages"]) > 1:  # type: ignore[arg-type]
            return FakeReply("Done.")
        command: dict[str, Any] = {"command": "readlink -f /bin/ls > where.txt"}
        return FakeReply("I look.", calls=(FakeCall("bash", command),))

    check = "grep busybox where.txt && cat /etc/passwd"
    task = FleetTask(prompt="Where?", check=check, container=IMAGE, permission_mode="auto")
    database = await open_database(f"sqlite:{tmp_path / 'fleet.db'}")
    await database.submit([task])
    async with ProviderServer(reply) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
        monkeypatch.setenv("TREADLE_MODEL", "anthropic/claude-sonnet-4-5")
        folders = RunWorkspaces(tmp_path / "runs", database)
        await Worker(database, poll=0.05, folders=folders).run(until_idle=True)
    (run,) = await database.runs()
    await database.aclose()
    assert run.result is not None, run.error
    assert run.result.check is not None, run
    assert "/bin/busybox" in run.result.check.output
    assert run.result.cause == "check_failed", "the image has no /etc/passwd"


async def test_a_coding_agent_runs_its_commands_in_containers(options, tmp_path):
    look = Say(calls=[("bash", {"command": "readlink -f /bin/ls"})])
    model = Scripted([look, "Done."])
    agent = coding_agent(tmp_path, model=model, container=options, permission_mode="auto")
    async with agent:
        result = await agent.run("Where are you?")
    assert "/bin/busybox" in str(result.transcript)


async def test_deny_rules_about_files_hold_for_commands_in_containers(options, tmp_path):
    home = Path(os.environ["HOME"]) / ".treadle"
    home.mkdir(exist_ok=True)
    rules = {"deny": ["Read(.env)", "Read(private/**)", "Edit(data/**)"]}
    (home / "settings.json").write_text(json.dumps({"permissions": rules}))
    work = tmp_path / "work"
    for name in ("app/.env", "private/key", "data/table"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(f"hidden words of {name}\n")
    (work / "other").hardlink_to(work / "app/.env")
    (work / "link").symlink_to("private/key")
    script = (  # the policy denies a command that names these files itself
        "cat app/.env other link private/key data/table; echo x > data/table; mv app b;"
        " mv private p; echo new > free; ls"
    )
    (work / "look.sh").write_text(script)
    call = Say(calls=[("bash", {"command": "sh look.sh"})])
    model = Scripted([call, Say("Done.")])
    async with coding_agent(
        work, model=model, container=options, permission_mode="bypass"
    ) as agent:
        result = await agent.run("Look.")
    output = str(result.transcript[-2])
    assert re.findall("hidden words of [a-z./]+", output) == ["hidden words of data/table"]
    assert (work / "data/table").read_text() == "hidden words of data/table\n"
    assert (work / "private/key").exists()
    assert (work / "app/.env").read_text() == "hidden words of app/.env\n"
    assert (work / "free").exists()


async def test_a_command_cannot_change_what_git_runs_on_this_machine(options, tmp_path):
    root = tmp_path / "work"
    (root / ".git/hooks").mkdir(parents=True)
    (root / ".git/config").write_text("[core]\n")
    (root / ".envrc").write_text("safe")
    workspace = ContainerWorkspace(root, options)
    try:
        done = await workspace.run(
            "echo x > .envrc; echo x > .git/config; touch .git/hooks/pre-commit; "
            "mv .git other; touch .git/index"
        )
    finally:
        await workspace.aclose()
    assert done.exit_code == 0, done.output
    assert (root / ".git/config").read_text() == "[core]\n"
    assert (root / ".envrc").read_text() == "safe"
    assert sorted(one.name for one in (root / ".git").iterdir()) == ["config", "hooks", "index"]
    assert list((root / ".git/hooks").iterdir()) == []


MADE_FOR_GIT = (
    "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
    "echo x > .git/config.worktree",
    "mkdir -p .git/info && echo '* filter=x' > .git/info/attributes",
    "mkdir other && echo x > other/config && echo ../other > .git/commondir",
    "mkdir -p .git/modules/m/hooks && echo x > .git/modules/m/hooks/post-checkout",
    "mkdir -p sub/.git/hooks && echo x > sub/.git/hooks/post-checkout",
    "mkdir -p sub/.git && printf '[core]\\n fsmonitor = x\\n' > sub/.git/config",
    "printf '[core]\\n fsmonitor = x\\n' > inner/.git/config",
    "mv inner i; mkdir -p inner/.git; printf '[core]\\n fsmonitor = x\\n' > inner/.git/config",
    "mkdir b; cd b; echo 'ref: refs/heads/main' > HEAD; mkdir objects refs; "
    "printf '[core]\\n fsmonitor = x\\n' > config",
    "mkdir -p .git/rebase-merge; echo 'exec x' > .git/rebase-merge/git-rebase-todo",
)


@pytest.mark.parametrize("command", MADE_FOR_GIT)
async def test_what_a_command_makes_for_git_does_not_stay(options, tmp_path, command):
    root = tmp_path / "work"
    for git in (root / ".git", root / "inner/.git"):
        for name in ("objects", "refs"):
            (git / name).mkdir(parents=True)
        (git / "HEAD").write_text("ref: refs/heads/main\n")
        (git / "config").write_text("[core]\n")
    workspace = ContainerWorkspace(root, options)
    try:
        done = await workspace.run(command)
        started = await workspace.start(f"({command}); echo done > log")
        await started.wait()
        read = await workspace.run("cat .git/HEAD")
    finally:
        await workspace.aclose()
    risky = [
        path
        for path in root.rglob("*")
        if path.is_file()
        and (".git" in path.parts or (path.parent / "HEAD").exists())
        and path.read_text().strip().endswith(("fsmonitor = x", "filter=x", "../other", "exec x"))
    ]
    hooks = [path for path in root.rglob("*hooks/*") if path.is_file()]
    assert (risky, hooks) == ([], []), done.output
    assert not (root / ".git/config.worktree").exists()
    assert "was moved to" in done.note or "Read-only" in done.output
    assert (read.exit_code, read.output) == (0, "ref: refs/heads/main\n")
    assert (root / "log").read_text() == "done\n"


def test_a_repository_in_what_a_rule_denies_is_not_mounted_over_it(tmp_path):
    root = tmp_path / "work"
    for folder in ("data/a", "private/b", "free/c"):
        (root / folder / ".git").mkdir(parents=True)
    rules = [compile_path_pattern(text, str(root), "/") for text in ("private", "data")]
    denials = FileDenials(unreadable=(rules[0],), unwritable=(rules[1],))
    mounts = ContainerMounts(str(root), lambda: denials)
    volumes = {one.split(":")[1]: one for one in mounts.begin(str(tmp_path))}
    assert str(root / "free/c/.git") in volumes
    assert not {str(root / "data/a/.git"), str(root / "private/b/.git")} & {*volumes}
    mounts.end()
    whole = FileDenials(unwritable=(compile_path_pattern("**", str(root), "/"),))
    listed = ContainerMounts(str(root), lambda: whole).begin(str(tmp_path))
    assert [one for one in listed if not one.endswith(":ro")] == []


@pytest.mark.parametrize("image", ["", "--privileged", "a b"])
def test_what_is_no_image_is_refused(image):
    with pytest.raises(ConfigError, match="is not the name of an image"):
        ContainerOptions(image=image)
    with pytest.raises(ConfigError, match="it must be an image"):
        FleetTask(prompt="x", container=image)


async def test_an_image_that_does_not_exist_is_named(options, tmp_path):
    missing = ContainerOptions(image="localhost/treadle-no-such-image:1", program="podman")
    workspace = ContainerWorkspace(tmp_path, missing)
    try:
        with pytest.raises(WorkspaceError, match="no-such-image"):
            await workspace.run("true")
    finally:
        await workspace.aclose()


def test_without_podman_and_docker_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkspaceError, match="neither podman nor docker is installed"):
        ContainerWorkspace(tmp_path, ContainerOptions(image="x"))
