"""A stored tree as a map of paths, and back.

A tree also names the paths whose content it does not have: what the project ignored, and what could
not be stored. Used by `restore` and `restore_plan`.
"""

from __future__ import annotations

from collections.abc import Collection

from treadle.lib.git.ignore import GITIGNORE, IgnoreRules
from treadle.workspace.checkpoints.object_store import ObjectStore, TreeNode


class FlatTree:
    """The files of a folder at one time; `folders` have their permissions, 0 if unknown."""

    def __init__(
        self,
        objects: ObjectStore,
        files: dict[str, TreeNode],
        folders: dict[str, int],
        not_stored: Collection[str] = (),
        ignored: Collection[str] = (),
    ) -> None:
        self.files = files
        self.folders = folders
        self.not_stored = frozenset(not_stored)
        self.ignored = frozenset(ignored)
        self.objects = objects
        self._rules: dict[str, IgnoreRules] = {}

    def lacks_folder(self, path: str) -> bool:
        return path not in self.folders and not is_within(path, self.not_stored | self.ignored)

    def ignores(self, path: str) -> bool:
        """Whether the project ignored this path, so that the tree does not have its content."""
        if is_within(path, self.ignored):
            return True
        # A tree of an earlier version does not list what it ignored: ask its .gitignore files.
        folders = parent_folders(path)
        if any(self._rules_in(folder).is_ignored(inner, True) for folder, inner in _pairs(folders)):
            return True
        return self._rules_in(folders[-1] if folders else "").is_ignored(path, False)

    def _rules_in(self, folder: str) -> IgnoreRules:
        if folder not in self._rules:
            above = self._rules_in(folder.rpartition("/")[0]) if folder else IgnoreRules()
            self._rules[folder] = above.with_gitignore(folder, self._read_gitignore(folder))
        return self._rules[folder]

    def _read_gitignore(self, folder: str) -> str:
        node = self.files.get(f"{folder}/{GITIGNORE}" if folder else GITIGNORE)
        if node is None or node.kind != "file":
            return ""
        return self.objects.get(node.hash).decode(errors="replace")


def flatten_tree(objects: ObjectStore, tree: str) -> FlatTree:
    files: dict[str, TreeNode] = {}
    folders: dict[str, int] = {}
    not_stored: set[str] = set()
    ignored: set[str] = set()

    def walk(name: str, prefix: str) -> None:
        for node in objects.get_folder(name):
            path = prefix + node.name
            match node.kind:
                case "folder":
                    folders[path] = node.mode
                    walk(node.hash, f"{path}/")
                case "left":
                    not_stored.add(path)
                case "ignored":
                    ignored.add(path)
                case _:
                    files[path] = node

    walk(tree, "")
    return FlatTree(objects, files, folders, not_stored, ignored)


def store_tree(objects: ObjectStore, flat: FlatTree) -> str:
    """The hash of the tree with these paths. The parent folders of every path are in `folders`."""
    entries: dict[str, list[TreeNode]] = {"": [], **{folder: [] for folder in flat.folders}}

    def add(path: str, node: TreeNode) -> None:
        entries[path.rpartition("/")[0]].append(node)

    for path, node in flat.files.items():
        add(path, node)
    for path in flat.not_stored:
        add(path, TreeNode(path.rpartition("/")[2], "left", 0, ""))
    for path in flat.ignored:
        add(path, TreeNode(path.rpartition("/")[2], "ignored", 0, ""))
    for path in sorted(flat.folders, key=lambda path: path.count("/"), reverse=True):
        name = path.rpartition("/")[2]
        add(path, TreeNode(name, "folder", flat.folders[path], _put(objects, entries[path])))
    return _put(objects, entries[""])


def is_within(path: str, ancestors: Collection[str]) -> bool:
    """Whether the path is one of these, or below one of them."""
    return bool(ancestors) and any(one in ancestors for one in (path, *parent_folders(path)))


def parent_folders(path: str) -> list[str]:
    """The parent folders of a path, the outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _pairs(folders: list[str]) -> list[tuple[str, str]]:
    """Each folder with the one in it, beginning with the root."""
    return list(zip(["", *folders], folders, strict=False))


def _put(objects: ObjectStore, nodes: list[TreeNode]) -> str:
    return objects.put_folder(sorted(nodes, key=lambda node: node.name))
