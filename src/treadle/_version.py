"""The version and the commit, alone in their file: the build and `treadle --version` read them
without the engine, and with built-in functions only."""

__version__ = "0.2.0"


def read_commit() -> str:
    """The commit that this code is of: in a checkout its own, else the one that the build wrote
    beside this file (scripts/build_hook.py). Empty if neither is known."""
    package = __file__.rpartition("/")[0]
    root = package.removesuffix("/src/treadle")
    commit = "" if root == package else _read_head(root)
    return commit[:12] or _read_text(f"{package}/_commit.txt")


def _read_head(root: str) -> str:
    """The commit that HEAD names: by itself, or by a branch, which is a file or a packed line."""
    git = f"{root}/.git"
    if link := _read_text(git).removeprefix("gitdir: "):  # a worktree
        git = link if link.startswith("/") else f"{root}/{link}"
    head = _read_text(f"{git}/HEAD")
    if not head.startswith("ref: "):
        return head
    branch = head[5:]
    common = _read_text(f"{git}/commondir")
    for folder in (git, f"{git}/{common}") if common else (git,):
        if commit := _read_text(f"{folder}/{branch}"):
            return commit
        for line in _read_text(f"{folder}/packed-refs").splitlines():
            if line.endswith(f" {branch}"):
                return line.partition(" ")[0]
    return ""


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib is not imported at start
            return file.read().strip()
    except (OSError, ValueError):
        return ""
