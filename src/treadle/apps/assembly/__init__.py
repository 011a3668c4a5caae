"""Builds an agent from settings and a folder. The only package that knows all parts.

    coding_agent      `coding_agent`: a folder and arguments in, an Agent out (start here)
    stages            in which order an agent is built
    parts             what the stages fill and the agent owns; what a host gives
    assemble          `build_agent`: the same with a session on disk, for the hosts

    toolset      built-in tools, workspaces      servers           the MCP servers
    prompt       the system prompt, notices      hooks             hooks and observers
    children     child agents                    kept_branches     what interrupted ones left
    sessions     opens or resumes a session      limits            gates: tokens, time, cost
    lazy         parts made at first use         checkpoints       files before and after turns
    redaction    keeps secrets out of outputs    suspend           turns that wait on disk

Used by apps/console and by the hosts.
"""

from treadle.apps.assembly.assemble import AgentSession, build_agent
from treadle.apps.assembly.parts import SessionOptions

__all__ = ["SessionOptions", "AgentSession", "build_agent"]
