"""The child agents of the coding agent.

setup      prepares a child, and merges what it changed
places     where it works: the folder, a worktree, or a sandbox that is read-only
policies   the rules of its parent, in a mode that may be narrower
prompt     what it is told: the prompt of its parent, by its definition and tools
"""
