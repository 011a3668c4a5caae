"""Git worktrees: of child agents, whose changes come back, and of sessions, which stay.

    git                 runs git for the engine, and what is known of a repository
    worktrees           opens, ends and removes the worktrees of a folder: start here
    session_worktrees   those of `treadle --worktree`
    worktree_end        what became of a worktree
    worktree_files      the record and the lock of a worktree, and its removal
    merge               brings the changes of a worktree back into the folder

The files that the user has changed are never written: changes that do not fit stay as a branch.
"""
