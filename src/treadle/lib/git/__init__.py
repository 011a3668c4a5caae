"""Git, for code that must be quick and may be in a folder that it does not trust.

    repository   which repository git uses in a folder, where its parts are, the branch
    config       the entries of its configuration
    index        the paths that it tracks
    index_file   the file with them, where git does not see all files
    objects      whether its commits have a file
    ignore       which files are ignored
    run          the program git: in a trusted folder, or without any configuration

It has no opinion about what is harmful: the permissions and the sandbox have.
"""
