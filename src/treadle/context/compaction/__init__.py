"""Makes a long history fit the model's window: cheap trims first, then a summary.

pins      what survives every compaction verbatim
trims     old large results become references that `recall` can open
summary   a small model summarizes older items
compactor the mutator: decides when to compact and in which order, rejects useless compactions
"""

from treadle.context.compaction.compactor import Compactor

__all__ = ["Compactor"]
