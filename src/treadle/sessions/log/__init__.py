"""The log of one session on disk: written, locked, read back, loaded into a view."""
