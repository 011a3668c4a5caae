"""Where the parts meet: from settings and a folder to an agent that can work there.

    wire       the door: settings and a folder in, an agent out      bench  where it is put together
    rules      the permission rules of a folder, trust    extras     hooks, servers and skills in it
    prompt     what the model is told first               reminding  what it is told later
    sessions   where sessions are kept, by id             files      checkpoints around turns
    parking    turns that are put off                     doubts     what a crash left open
    late       what is made when it is needed             servers    MCP servers, without surprises
    discretion secrets stay where they are                past       what was asked before
    costs      what was spent                             keeping    a setting that is written down

The only place that knows all of the parts. Hosts stand above and use this alone; settings and
everything else stand below.
"""

from treadle.apps.wiring.wire import Opening, Wired, wire

__all__ = ["Opening", "Wired", "wire"]
