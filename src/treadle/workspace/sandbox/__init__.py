"""The sandbox around commands: what they cannot reach, whatever they do.

    bubblewrap       namespaces and mounts: what is visible, what is writable, no network
    protected_paths  what commands may not change, read or create in writable folders
    file_denials     the deny rules about files, and what they match
    tree_scan        finds these paths (found_entry); mounts: how bubblewrap covers them
    stand_ins        what commands see in the place of a file that may not be read
    run_record       what the next session has to know if this one is killed
    folder_permissions  folders that a command made unreadable
    git_folders      git folders outside the workspace, harmless settings of git
    repositories     which new files are trusted: what a checkout or a clone brings
    system_view      what is visible of the system and of home; sockets of the host are hidden
    line_kinds       lines that only remove or only read
    seccomp          system calls that are refused inside
    probe            whether the sandbox can be built here

The policy decides which commands run; this package builds the sandbox or reports why it cannot. It
is not loaded if the sandbox is off: landlock.py, which also restricts our own read-only programs,
and command_limits.py are beside it.
"""
