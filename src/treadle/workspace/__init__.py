"""Where the agent works: files and processes of this machine, and the sandbox around them.

local        the Workspace contract, put together from what follows
files        reading and atomic writing beneath the roots; temps: names of half-written files
processes    commands, through the keeper that owns their trees (keeper/)
intake       what a program prints, read by ourselves; background: a command that goes on
output       what a command printed, as harmless text
environment  what a command may know of ours
private      a folder of our own: temp for sandboxed commands, long outputs
sandbox/     the wall: bubblewrap, Landlock, seccomp
"""
