"""Where the parts meet: from settings and a folder to an agent that can work there.

    wire       puts everything together                 late      what is made when it is needed
    rules      the permission rules of a folder, trust  sessions  where sessions are kept, by id
    prompt     what the model is told first

The only place that knows all of the parts. Hosts stand above and use this alone; settings and
everything else stand below.
"""

from treadle.apps.wiring.wire import Opening, Wired, wire

__all__ = ["Opening", "Wired", "wire"]
