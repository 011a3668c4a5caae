"""The wall around commands: what they cannot reach, whatever they are told to do.

    bubblewrap  namespaces and mounts: what is seen, what can be written, no network
    protection  paths that stay as they are even where the command may write
    seccomp     system calls that are refused inside
    landlock    no signals and no abstract sockets to what is outside
    readers     programs of ours that only read: what they may open
    limits      how many processes a command may start

What may be asked for is the policy's business; here it is only built, or said why it cannot be.
"""
