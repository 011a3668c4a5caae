"""The hosts: command line, terminal, page, editors, fleets, and what they share.

Hosts do not import each other; they share settings, assembly, console and conversation.
"""
