"""The hosts: the command line and the terminal UI.

Hosts do not import each other; they share settings, assembly and services.
"""
