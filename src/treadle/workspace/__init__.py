"""Where the agent works: files and processes of this machine, and the sandbox around them.

local        the Workspace contract, put together from what follows
files        reading and atomic writing beneath the roots; temps: names of half-written files
processes    commands, through the keeper that owns their trees (keeper/)
output       what a command printed, as harmless text
environment  what a command may know of ours
private      a folder of our own: temp for sandboxed commands, long outputs
sandbox/     the wall: bubblewrap, Landlock, seccomp
"""
