"""Where the agent works: files and processes of this machine, and the sandbox around them.

local        the Workspace contract, put together from what follows
files        reading and atomic writing beneath the roots
processes    commands, through the keeper that owns their trees (keeper/)
output       what a command printed, as harmless text
environment  what a command may know of ours
sandbox/     the wall: bubblewrap, Landlock, seccomp
"""
