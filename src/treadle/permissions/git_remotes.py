"""The repositories that a git command exchanges commits with beside the remotes of its own one.

`Bash(git push:*)` is for configured remotes: another address asks, and so does a folder, in which
`git push` runs hooks. Used by `git_evaluator.py`. Knows no rules.
"""

import re
from collections.abc import Callable, Iterator

from treadle.lib.git.config import ConfigEntries, drop_subsection
from treadle.lib.shell.analysis.git import GitCommand
from treadle.lib.shell.analysis.options import OptionGrammar, scan_options
from treadle.lib.text.word_set import word_set

REMOTE_SUBCOMMANDS = word_set("push fetch pull ls-remote remote")
_OPTIONS = OptionGrammar(
    "ojsX",
    word_set(
        "--push-option --receive-pack --exec --repo --depth --deepen --shallow-since "
        "--shallow-exclude --upload-pack --refmap --negotiation-tip --server-option --filter "
        "--jobs --strategy --strategy-option --sort"
    ),
)
_ADDRESS = re.compile(r"://|.@.*:")


def find_other_remote(
    command: GitCommand, read_config: Callable[[], ConfigEntries], exists: Callable[[str], bool]
) -> str:
    """A repository among the words that is not "." and no remote of the configuration; or ""."""
    known: set[str] | None = None
    for text in _list_named(command):
        if text in (".", "") or not (":" in text or any(map(exists, (text, f"{text}.git")))):
            continue  # git finds nothing by another name
        if known is None:
            known = {".", *_list_remotes(read_config())}
        if text not in known:
            return text
    return ""


def _list_named(command: GitCommand) -> Iterator[str]:
    options, operands = scan_options(command.arguments, _OPTIONS)
    if command.name == "remote":
        operands = operands[1:]  # the first one is `show`
    names = {option.name for option in options}
    first = len(operands) if command.name == "remote" or "--multiple" in names else 1
    for at, word in enumerate(operands):
        if at < first or _ADDRESS.search(word.text or ""):
            yield word.text or ""
    yield from (o.value.text or "" for o in options if o.name == "--repo" and o.value)


def _list_remotes(config: ConfigEntries) -> Iterator[str]:
    """The names and the addresses of the configured remotes."""
    for key, value in config:
        if drop_subsection(key) in ("remote.url", "remote.pushurl"):
            yield value
            yield key.partition(".")[2].rpartition(".")[0]
