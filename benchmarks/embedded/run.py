"""Measures what the embedded models can do on this machine.

    python benchmarks/embedded/run.py choices MODEL [FILE]   one-step tool choices
    python benchmarks/embedded/run.py repair MODEL [NAME…]   one-line bugs, with a check
    python benchmarks/embedded/run.py tasks MODEL [NAME…]    plain tasks, by the real program
    python benchmarks/embedded/run.py ask MODEL "prompt"     one prompt in the present folder

With --plain the model works without the aids of the engine (models/embedded/aids). A repair
ends after 60 rounds, or as many as --rounds=N says.
Real agents, real tool calls, real files in a fresh copy of each project. A plain task (tasks.jsonl)
is one `treadle -p`, which has 300 seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

import treadle
from treadle.agents.agent import Agent
from treadle.core.contracts.hook import Block, HookInput, HookPoint
from treadle.core.contracts.model import Model, ModelRequest, Reply
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import ToolError
from treadle.core.events import Event
from treadle.core.transcript import AssistantItem, Item, Transcript, to_user_item
from treadle.models.embedded import Assisted, Embedded
from treadle.tools.function import FunctionTool

HERE = Path(__file__).resolve().parent
IS_PLAIN = "--plain" in sys.argv
OPTIONS = [word for word in sys.argv if word.startswith("--rounds=")]
MAX_ROUNDS = int(OPTIONS[0].partition("=")[2]) if OPTIONS else 60
TASK_SECONDS = 300
TIMED_OUT = 124  # as the exit code of timeout(1)
# `python3` of a command is this interpreter, which has pytest.
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
PROGRAM = (sys.executable, "-I", str(Path(treadle.__file__).parent / "__main__.py"))


def make_model(name: str) -> Model:
    model = Embedded(name)
    return model if IS_PLAIN else Assisted(model)


def tools(root: Path) -> list[FunctionTool]:
    """The tools of a coding agent, in their simplest form, at work in one folder."""

    def read(file_path: str) -> str:
        """Read a file."""
        try:
            return (root / file_path).read_text()
        except OSError as error:
            raise ToolError(f"cannot read {file_path}: {error.strerror}") from error

    def write(file_path: str, content: str) -> str:
        """Write a file."""
        (root / file_path).write_text(content)
        return f"wrote {file_path}"

    def edit(file_path: str, old_string: str, new_string: str) -> str:
        """Replace a text that occurs exactly once in a file."""
        text = read(file_path)
        if text.count(old_string) != 1:
            raise ToolError(f"old_string occurs {text.count(old_string)} times in {file_path}")
        (root / file_path).write_text(text.replace(old_string, new_string))
        return f"changed {file_path}"

    def bash(command: str) -> str:
        """Run a command."""
        code, output = run(command, root)
        return f"{output}\nexit code {code}"

    def glob(pattern: str) -> str:
        """Find files by name."""
        return "\n".join(sorted(str(path.relative_to(root)) for path in root.glob(pattern)))

    def grep(pattern: str) -> str:
        """Search in files."""
        return run(f"grep -rn -- '{pattern}' .", root)[1]

    return [FunctionTool(one) for one in (read, write, edit, bash, glob, grep)]


def run(command: str, root: Path) -> tuple[int, str]:
    """Runs a command for at most 20 seconds; then it and its children are ended."""
    with subprocess.Popen(
        command,
        shell=True,
        cwd=root,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=20)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return TIMED_OUT, "timed out after 20 seconds"


class Watcher:
    """Prints the replies of the agent on the error output."""

    def on_event(self, event: Event) -> None:
        pass

    def on_item(self, position: int, item: Item) -> None:
        if isinstance(item, AssistantItem):
            calls = " ".join(f"[{call.name} {call.raw}]" for call in item.calls)
            print(f"  {time.strftime('%X')} {item.text} {calls}", file=sys.stderr, flush=True)


class Goal:
    """A command that must pass before the agent may stop; it blocks at most `times` times."""

    points: frozenset[HookPoint] = frozenset({"stop"})

    def __init__(self, command: str, root: Path, *, times: int = 2) -> None:
        self.command, self.root, self.times = command, root, times

    async def run(self, hook_input: HookInput) -> Block | None:
        code, output = await asyncio.to_thread(run, self.command, self.root)
        if code == 0 or self.times == 0:
            return None
        self.times -= 1
        text = f"The goal `{self.command}` is not met:\n{output}"
        return Block(text, data={"goal_command": self.command})


async def repair(model: Model, project: Path) -> str:
    """One row of the table."""
    test = _test_in(project)
    check = f"sh {test}" if test.endswith(".sh") else f"python3 -B {test}"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(project, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__*"))
        agent = Agent(
            model,
            tools(root),
            hooks=[Goal(check, root)],
            observers=[Watcher()],
            max_turns=MAX_ROUNDS,
        )
        started = time.monotonic()
        result = await agent.run(f"The check `{check}` fails. Fix the program.")
        seconds = time.monotonic() - started
        untouched = (root / test).read_text() == (project / test).read_text()
        repaired = run(check, root)[0] == 0 and untouched
        replies = [item for item in result.transcript if isinstance(item, AssistantItem)]
        tries = sum(item.text.startswith("Try ") for item in replies)
        tokens = result.usage.output
    mark = "yes" if repaired else "no"
    text = result.text.replace("\n", " ").replace("|", "\\|")
    return f"| {project.name} | {mark} | {tries} | {tokens} | {seconds:.0f} | {text} |"


def _test_in(project: Path) -> str:
    return next(path.name for path in sorted(project.iterdir()) if path.name.startswith("test_"))


async def repairs(name: str, names: list[str]) -> None:
    model = make_model(name)
    print(
        "| project | repaired | tries | tokens written | s | last text |\n|---|---|---|---|---|---|"
    )
    rows: list[str] = []
    for project in sorted((HERE / "projects").iterdir()):
        if not names or project.name in names:
            rows.append(await repair(model, project))
            print(rows[-1], flush=True)
    print(f"\n{sum('| yes |' in row for row in rows)} of {len(rows)} repaired by {model.name}")
    await model.aclose()


async def choices(name: str, file: str = "choices.jsonl") -> None:
    model = make_model(name)
    specs: tuple[ToolSpec, ...] = tuple(tool.spec for tool in tools(HERE))
    lines = (HERE / file).read_text().splitlines()
    right = 0
    for line in lines:
        choice = json.loads(line)
        started = time.monotonic()
        request = ModelRequest(Transcript([to_user_item(choice["said"])]), tools=specs)
        *_, last = [event async for event in model.stream(request)]
        assert isinstance(last, Reply)
        reply = last.item
        call = next(iter(reply.calls), None)
        got, text = (call.name, call.raw) if call else ("answer", reply.text)
        wanted = choice["right"].get(got)
        good = wanted is not None and re.search(wanted, text, re.DOTALL) is not None
        right += good
        seconds = time.monotonic() - started
        print(f"{'ok' if good else 'NO'}  {seconds:5.1f} s  {choice['said']} -> {got} {text[:90]}")
        sys.stdout.flush()
    print(f"{right} of {len(lines)} by {model.name}")
    await model.aclose()


class PlainTask(msgspec.Struct, frozen=True):
    """A folder and a prompt. It is done if the check passes, the answer has what it must, and the
    tests of the folder are unchanged."""

    name: str
    prompt: str
    files: dict[str, str]
    check: str = ""
    answer: str = ""  # a pattern

    def write_files(self, root: Path) -> None:
        for path, text in self.files.items():
            (root / path).write_text(text)
        for command in ("init -q", "add -A", "-c user.name=u -c user.email=u@x commit -qm First"):
            subprocess.run(["git", *command.split()], cwd=root, check=True)

    def is_done(self, root: Path, answer: str) -> bool:
        tests = [path for path in self.files if path.startswith("test_")]
        if any(_read_or_nothing(root / path) != self.files[path] for path in tests):
            return False
        return re.search(self.answer, answer) is not None and run(self.check, root)[0] == 0


class TaskRun(msgspec.Struct, frozen=True):
    name: str
    is_done: bool
    code: int
    seconds: float
    answer: str

    @property
    def is_false_success(self) -> bool:
        return self.code == 0 and not self.is_done

    def format_row(self) -> str:
        mark = "yes" if self.is_done else "no"
        text = " ".join(self.answer.split()).replace("|", "\\|")[:120]
        return f"| {self.name} | {mark} | {self.code} | {self.seconds:.0f} | {text} |"


def read_tasks() -> list[PlainTask]:
    lines = (HERE / "tasks.jsonl").read_text().splitlines()
    return [msgspec.json.decode(line, type=PlainTask) for line in lines]


def run_task(task: PlainTask, program: Sequence[str], seconds: float = TASK_SECONDS) -> TaskRun:
    """One start of the program in a fresh folder, with a fresh home and the weights and prefixes
    of this one."""
    home = Path.home()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as own_home:
        root = Path(folder)
        task.write_files(root)
        env = {
            "XDG_DATA_HOME": str(home / ".local" / "share"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            **ENVIRONMENT,
            "HOME": own_home,
            "TREADLE_ASSIST": "false" if IS_PLAIN else "true",
        }
        arguments = [*program, "--permission-mode", "auto", "--quiet", "-p", task.prompt]
        started = time.monotonic()
        with subprocess.Popen(
            arguments,
            cwd=root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                answer, _ = process.communicate(timeout=seconds)
                code = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                answer, code = "", TIMED_OUT
        passed = time.monotonic() - started
        return TaskRun(task.name, task.is_done(root, answer), code, passed, answer)


def _read_or_nothing(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def run_tasks(name: str, names: Sequence[str], program: Sequence[str] = PROGRAM) -> None:
    print("| task | done | exit code | s | answer |\n|---|---|--:|--:|---|")
    runs: list[TaskRun] = []
    for task in read_tasks():
        if not names or task.name in names:
            runs.append(run_task(task, [*program, "--model", f"embedded/{name}"]))
            print(runs[-1].format_row(), flush=True)
    done, false = sum(one.is_done for one in runs), sum(one.is_false_success for one in runs)
    print(f"\n{done} of {len(runs)} done by embedded/{name}; {false} not done with exit code 0")


async def ask(name: str, prompt: str) -> None:
    model = make_model(name)
    print(model.card.note)
    result = await Agent(model, tools(Path.cwd())).run(prompt)
    for item in result.transcript:
        if isinstance(item, AssistantItem):
            for call in item.calls:
                print(f"[{call.name} {call.raw}]")
            print(item.text)
    await model.aclose()


if __name__ == "__main__":
    task, name, *rest = [word for word in sys.argv[1:] if not word.startswith("--")]
    if task == "repair":
        asyncio.run(repairs(name, rest))
    elif task == "tasks":
        run_tasks(name, rest)
    elif task == "choices":
        asyncio.run(choices(name, *rest))
    else:
        asyncio.run(ask(name, " ".join(rest)))
