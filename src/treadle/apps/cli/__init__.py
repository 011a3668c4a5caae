"""The command line: the words a person types, and the exit codes a script reads."""
