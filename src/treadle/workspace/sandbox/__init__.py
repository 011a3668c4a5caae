"""The sandbox around commands: what they cannot reach, whatever they do.

    bubblewrap       namespaces and mounts: what is visible, what is writable, no network
    protected_paths  paths that stay read-only in writable folders
    seccomp          system calls that are refused inside
    landlock         no signals and no abstract sockets to the outside
    read_only        which files our own read-only programs may open
    limits           how many processes a command may start
    probe            whether the sandbox can be built here

The policy decides which commands run; this package builds the sandbox or reports why it cannot.
"""
