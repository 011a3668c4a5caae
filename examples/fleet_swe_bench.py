"""A set of tasks of the SWE-bench form, run end to end: repository, commit, problem, tests.

Each run has a clone at its commit; its check applies the test patch and runs the tests. The script
below repairs one bug of two. A model given as an argument, such as `embedded`, works instead of it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from treadle import Agent, coding_agent
from treadle.contracts import AssistantItem, ModelRequest
from treadle.fleet import Fleet, FleetTask, TaskDefaults, load_tasks, make_report
from treadle.models import Say, Scripted

BUGS = {"add": "return a - b", "double": "return a * 3"}
TESTS = {"add": "assert add(2, 3) == 5", "double": "assert double(4, 0) == 8"}
PATCH = """\
diff --git a/test.py b/test.py
new file mode 100644
--- /dev/null
+++ b/test.py
@@ -0,0 +1,2 @@
+from code_{name} import {name}
+{test}
"""


def make_repository(folder: Path, name: str) -> dict[str, str]:
    """A repository with one bug; the line of the set about it."""
    repository = folder / f"acme__{name}"
    repository.mkdir()
    (repository / f"code_{name}.py").write_text(f"def {name}(a, b):\n    {BUGS[name]}\n")
    git = ("git", "-C", str(repository), "-c", "user.name=x", "-c", "user.email=x@example.com")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    return {
        "instance_id": f"acme__{name}-1",
        "repo": f"acme/{name}",
        "base_commit": commit,
        "problem_statement": f"The function {name} in code_{name}.py returns a wrong number.",
        "test_patch": PATCH.format(name=name, test=TESTS[name]),
        "test_command": "python3 test.py",
    }


def reply(request: ModelRequest) -> Say:
    fix = {"file_path": "code_add.py", "old_string": "a - b", "new_string": "a + b"}
    is_first = not any(isinstance(item, AssistantItem) for item in request.transcript)
    if is_first and "add" in str(request.transcript[0]):
        return Say("I repair it.", calls=[("edit", fix)])
    return Say("Done.")


def make_agent(task: FleetTask, folder: Path) -> Agent:
    model = sys.argv[1] if len(sys.argv) > 1 else Scripted(reply)
    return coding_agent(folder, model=model, permission_mode="bypass", sandbox="off")


async def main(folder: Path) -> None:
    lines = [json.dumps(make_repository(folder, name)) for name in BUGS]
    (folder / "tasks.jsonl").write_text("\n".join(lines))
    loaded = load_tasks(folder / "tasks.jsonl", TaskDefaults(repositories=str(folder)))
    async with Fleet(f"sqlite:{folder}/fleet.db", agent=make_agent, folder=folder) as fleet:
        runs = [run async for run in fleet.run(loaded.tasks)]
    report = make_report(runs, 0.0)
    for row in sorted(report.runs, key=lambda row: row.id):
        print(row.id, "passed" if row.passed else f"did not pass: {row.cause}")
    print(f"passed: {report.pass_rate.passed} of {report.pass_rate.judged}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
