"""Builds an agent from settings and a folder. The only package that knows all parts.

    coding_agent      `coding_agent`: a folder and arguments in, an Agent out (start here)
    assemble          `build_agent`: the same with a session on disk, for the hosts

    parts        what the agent owns             host_session      what a host adds to it
    telemetry    spans to a collector
    rules        permission rules and trust      extensions        hooks, MCP servers, skills
    servers      the MCP servers                 hook_environment  environment of user programs
    sessions     opens or resumes a session      limits            gates: tokens, time, cost
    prompt       the system prompt               checkpoints       files before and after turns
    lazy         parts made at first use         suspend           turns that wait on disk
    redaction    keeps secrets out of outputs

Used by apps/console and by the hosts.
"""

from treadle.apps.assembly.assemble import AgentSession, build_agent
from treadle.apps.assembly.host_session import SessionOptions

__all__ = ["SessionOptions", "AgentSession", "build_agent"]
