"""Commands that try something out from a point of a session: bisect.py, whatif.py."""
