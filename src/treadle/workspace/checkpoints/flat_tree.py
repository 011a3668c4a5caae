"""A stored tree as a map of paths, and back; what differs between two trees.

A tree also names the paths whose content it does not have: what the project ignored, and what could
not be stored. Used by `checkpoints` and `restore_plan`.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from treadle.workspace.checkpoints.object_store import ObjectStore, TreeNode


class FlatTree(msgspec.Struct, frozen=True):
    """The files of a folder at one time; `folders` have their permissions, 0 if unknown.
    `unknown` are the paths without content."""

    files: dict[str, TreeNode]
    folders: dict[str, int]
    unknown: dict[str, TreeNode]

    def find(self, path: str) -> TreeNode | None:
        """The file, or what is known of it; None if there is none."""
        if path in self.files or not self.unknown:
            return self.files.get(path)
        above = (path, *parent_folders(path))
        return next((self.unknown[one] for one in above if one in self.unknown), None)


class TreeDiff(msgspec.Struct, frozen=True):
    """The files that differ between two trees, before and after, and the folders that one of them
    lacks, with their permissions. None: it is not there."""

    files: dict[str, tuple[TreeNode | None, TreeNode | None]]
    folders: dict[str, tuple[int | None, int | None]]


def is_stored(node: TreeNode | None) -> bool:
    """Whether the content is known; a file that is not there has none."""
    return node is None or node.kind not in ("left", "ignored")


def diff_trees(objects: ObjectStore, old: str, new: str) -> TreeDiff:
    """Equal folders are not read. What one of the two ignores is unknown, not different."""
    diff = TreeDiff({}, {})

    def compare(before: TreeNode | None, after: TreeNode | None, path: str) -> None:
        if before == after or _is_a(before, "ignored") or _is_a(after, "ignored"):
            return
        was_folder, is_folder = _is_a(before, "folder"), _is_a(after, "folder")
        if was_folder or is_folder:
            olds, news = _list_entries(objects, before), _list_entries(objects, after)
            # What is in a folder that could not be read is unknown, too.
            lost, left = (one if _is_a(one, "left") else None for one in (before, after))
            for name in sorted(olds.keys() | news.keys()):
                inner = f"{path}/{name}" if path else name
                compare(olds.get(name, lost), news.get(name, left), inner)
            if was_folder == is_folder or lost or left:
                return
            diff.folders[path] = _get_mode(before), _get_mode(after)
        files = None if was_folder else before, None if is_folder else after
        if files != (None, None):
            diff.files[path] = files

    compare(TreeNode("", "folder", 0, old), TreeNode("", "folder", 0, new), "")
    return diff


def flatten_tree(objects: ObjectStore, tree: str) -> FlatTree:
    flat = FlatTree({}, {}, {})

    def walk(name: str, prefix: str) -> None:
        for node in objects.get_folder(name):
            path = prefix + node.name
            if node.kind == "folder":
                flat.folders[path] = node.mode
                walk(node.hash, f"{path}/")
            else:
                (flat.files if is_stored(node) else flat.unknown)[path] = node

    walk(tree, "")
    return flat


def store_tree(objects: ObjectStore, flat: FlatTree) -> str:
    """The hash of the tree with these paths. The parent folders of every path are in `folders`."""
    entries: dict[str, list[TreeNode]] = {"": [], **{folder: [] for folder in flat.folders}}
    for path, node in (*flat.files.items(), *flat.unknown.items()):
        entries[path.rpartition("/")[0]].append(node)
    for path in sorted(flat.folders, key=lambda path: path.count("/"), reverse=True):
        above, _, name = path.rpartition("/")
        entries[above].append(
            TreeNode(name, "folder", flat.folders[path], _put(objects, entries[path]))
        )
    return _put(objects, entries[""])


def is_within(path: str, ancestors: Collection[str]) -> bool:
    """Whether the path is one of these, or below one of them."""
    return bool(ancestors) and any(one in ancestors for one in (path, *parent_folders(path)))


def parent_folders(path: str) -> list[str]:
    """The parent folders of a path, the outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _is_a(node: TreeNode | None, kind: str) -> bool:
    return node is not None and node.kind == kind


def _get_mode(node: TreeNode | None) -> int | None:
    return node.mode if node is not None and node.kind == "folder" else None


def _list_entries(objects: ObjectStore, node: TreeNode | None) -> dict[str, TreeNode]:
    if node is None or node.kind != "folder":
        return {}
    return {entry.name: entry for entry in objects.get_folder(node.hash)}


def _put(objects: ObjectStore, nodes: list[TreeNode]) -> str:
    return objects.put_folder(sorted(nodes, key=lambda node: node.name))
