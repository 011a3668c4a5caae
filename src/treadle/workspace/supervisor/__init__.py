"""The fork server: a small program that owns every process that the agent starts.

It runs once per workspace and imports nothing of treadle but this folder, so that it starts fast
and forks cheaply. A supervisor, forked in advance, takes the next call, starts the command, reads
its output and ends its process tree: orphans are reparented to it (subreaper), and it notices the
death of the agent by the end of its control socket. `processes.py` is the client.

         fork server ──fork──▶ supervisor (one per call) ──fork, exec──▶ command
    agent ──socket, shared───────▲  ▲
      └───── control socket, one per call
"""
