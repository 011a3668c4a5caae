"""The logger of the engine: `logging.getLogger("treadle")`.

It writes nothing by itself, also not to standard error: the program adds a handler and a level. No
secret of the environment is logged (core/loop/emitter.py). Imports nothing of the package.
"""

import logging
from typing import Final

logger: Final = logging.getLogger("treadle")
logger.addHandler(logging.NullHandler())
