"""Makes a long history fit the model's window: cheap trims first, then a summary.

pins      what survives every compaction verbatim
trims     old large results become references that `recall` can open
summary   the model of the session, or another one, summarizes the older part
compactor the mutator: decides when to compact and in which order, rejects useless compactions
"""

from treadle.context.compaction.compactor import Compactor

__all__ = ["Compactor"]
