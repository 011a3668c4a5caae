"""Draws blocks, diffs, Markdown and the status area as lines of text."""
