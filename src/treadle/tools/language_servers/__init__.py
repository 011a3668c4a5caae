"""What language servers and checkers that are installed say about code, without configuration.

    languages      which programs are for which files, and where they are found
    connection     messages to and from a server (LSP over stdio)
    server         one server: started at first use, started again if it crashes
    checker        a program that is run instead, where there is no server
    servers        those of a workspace, by file; ended with it
    edit_diagnostics   what an edit made worse, for the hook after edits (hooks/checkers.py)

The tools `find_symbol` and `rename_symbol` (builtin/code) ask the same servers. A server or checker
may run code of the repository (plugins, build scripts, interpreters): it runs in the sandbox, or in
a folder that the user trusts. Nothing here is imported before the first edit or call that needs it.
"""
