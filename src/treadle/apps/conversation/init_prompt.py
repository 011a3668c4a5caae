"""The message of `/init`: the agent writes AGENTS.md."""

from __future__ import annotations

INIT_PROMPT = """\
Look around in this project and write a file AGENTS.md at its root for coding agents that will \
work here: how to build, test (all, and a single one) and lint it; how it is laid out; the \
conventions that its code follows and that are not obvious. Read what is there before you write: \
the README, build files, a few sources, and an AGENTS.md or CLAUDE.md if there is one already, \
which you improve instead. Only what is true and useful, in at most 60 lines."""
