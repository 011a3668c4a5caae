"""The files that a session used last, as they are shown again after a compaction."""

from pathlib import Path

from treadle.apps.assembly.toolset import RecentFiles
from treadle.permissions.policy import RulePolicy, build_policy_context
from treadle.permissions.ruleset.rules_file import parse_rules
from treadle.tools.builtin import builtin_tools
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions


async def test_a_file_that_a_rule_denies_to_read_is_not_shown_again(tmp_path: Path):
    rules = parse_rules({"deny": ["Read(.env)"]}, root=str(tmp_path), home="/h")
    policy = RulePolicy(build_policy_context(tmp_path, rules))

    async def get_find_denied():
        return policy.find_denied

    workspace = LocalWorkspace(tmp_path, WorkspaceOptions())
    builtin = builtin_tools(workspace, get_find_denied=get_find_denied)
    for name in ("a.txt", ".env"):
        (tmp_path / name).write_text(f"the text of {name}")
    paths = [str(tmp_path / name) for name in (".env", "gone.txt", "a.txt")]
    assert await RecentFiles(builtin, workspace)(paths) == [(paths[2], "the text of a.txt")]
