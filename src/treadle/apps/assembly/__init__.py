"""Where the parts meet: from settings and a folder to an agent that can work there.

    wire         the door: settings and a folder in, an agent out
    bench        where it is put together, part by part

    prompt       what the model is told first       reminding        what it is told later
    extras       hooks, servers, skills of here     servers          the MCP servers among them
    rules        the rules of a folder, and trust   discretion       secrets stay where they are
    late         what is made when it is needed     sessions         which session is meant
    checkpoints  files around turns, for undo       parking          turns that are put off
    doubts       what a crash left open             keeping          a setting that is written down
    past         what was asked before, for rules   costs, costpage  what was spent
    programs     what a host runs for itself        surroundings     what own programs are told
    leading      where a named path leads

The only place that knows all of the parts. Hosts stand above and use this alone; settings and
everything else stand below.
"""

from treadle.apps.assembly.assemble import AgentSession, SessionOptions, build_agent

__all__ = ["SessionOptions", "AgentSession", "build_agent"]
