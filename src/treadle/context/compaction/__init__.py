"""Making a long history fit: first cheap trims, then a summary, and proof of what was kept.

pins      what survives every compaction, word for word
trims     old large results become references that `recall` can open
summary   a small model sums up what is older
compactor the mutator that decides when, in which order, and refuses what does not help
"""

from treadle.context.compaction.compactor import Compactor

__all__ = ["Compactor"]
