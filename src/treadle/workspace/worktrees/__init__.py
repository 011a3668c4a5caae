"""Git worktrees: of child agents, whose changes come back, and of sessions, which stay.

    worktree_git        runs git; the record and the lock of a worktree, and its removal
    worktrees           opens, ends and removes the worktrees of a folder: start here
    session_worktrees   those of `treadle --worktree`
    merge               brings the changes of a worktree back into the folder; what became of it

The files that the user has changed are never written: changes that do not fit stay as a branch.
"""
