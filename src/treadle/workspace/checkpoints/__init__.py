"""Checkpoints of the files in a folder: taken, compared, restored.

    checkpoints   the operations on one folder: take, diff, plan, apply, prune
    object_store  contents by hash; the same content is stored once
    safe_tree     access to the folder by descriptors: no symlink is followed
    scanner       the current files as a tree; unchanged files are not read again
    flat_tree     a tree as a map of paths, and back; what differs between two trees
    restore       writes and removes files
    restore_plan  what an undo or rewind would do to each file, and whose changes it has
    written_files the files that a call names, which are stored also if they are ignored
    recorder      a checkpoint before and after each call that may change files

It does not need git and never touches `.git`. Changes of shell commands are seen like any others.
Used by the hosts; the log holds only the hashes of trees.
"""
