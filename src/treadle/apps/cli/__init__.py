"""The command line: options, commands, output and exit codes."""
