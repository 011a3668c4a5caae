"""The hosts: command line, terminal, page, editors, fleets, evals, the protocols AG-UI and A2A, and
what they share.

Hosts do not import each other; they share settings, assembly, console, conversation and pages.
"""
