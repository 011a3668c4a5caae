"""Evaluates a tool call by the rules: the command line, the files, the address."""
