"""The keeper: a small program that owns every process the agent starts.

It runs once per workspace and imports nothing of ours beside this folder, so that it starts fast
and forks cheaply. A supervisor that it has forked in advance takes the next call, starts the
command, spools its output and ends its tree: orphans come back to it (subreaper), and it sees the
agent die as the end of its control socket. `processes.py` stands above and speaks its packets.

              keeper ──fork──▶ supervisor (one a call) ──fork, exec──▶ command
    agent ──socket, for all──────▲  ▲
      └───── control socket, one a call
"""
