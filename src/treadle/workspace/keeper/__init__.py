"""The keeper: a small program that owns every process the agent starts.

It runs once per workspace and imports nothing of ours beside this folder, so that it starts fast
and forks cheaply. For each call it forks a supervisor, which starts the command, spools its
output and ends its tree: orphans come back to it (subreaper), and it sees the agent die as the
end of its control socket. `processes.py` stands above it and speaks its packets.

    agent ──socket──▶ keeper ──fork──▶ supervisor (one a call) ──fork, exec──▶ command
      └───────────── control socket, one a call ─┘
"""
