"""The limits of a checkpoint: what is larger is left out.

Used by workspace/checkpoints, and by permissions: what no checkpoint has asks before it is removed.
"""

MAX_FILE_BYTES = 10 << 20
MAX_FILES = 100_000  # a folder with more has no checkpoint
MAX_DEPTH = 200  # each level holds a descriptor during the scan
MAX_GITIGNORE_BYTES = 1 << 20
