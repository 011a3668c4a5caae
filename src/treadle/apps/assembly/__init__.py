"""Builds an agent from settings and a folder. The only package that knows all parts.

    assemble          `build_agent`: settings and options in, an AgentSession out

    rules        permission rules and trust      extensions        hooks, MCP servers, skills
    servers      the MCP servers                 hook_environment  environment of user programs
    sessions     opens or resumes a session      limits            gates: tokens, time, cost
    prompt       the system prompt               checkpoints       files before and after turns
    lazy         parts made at first use         suspend           turns that wait on disk
    redaction    keeps secrets out of outputs

Used by apps/services and by the hosts.
"""

from treadle.apps.assembly.assemble import AgentSession, SessionOptions, build_agent

__all__ = ["SessionOptions", "AgentSession", "build_agent"]
