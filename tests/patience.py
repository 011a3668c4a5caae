"""How long a test waits for what must come, also beside other work on the machine."""

PATIENCE = 120.0
"""Seconds."""
