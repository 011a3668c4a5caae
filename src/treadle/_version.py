"""The version, alone in its file: the build and `treadle --version` read it without the engine."""

__version__ = "0.1.0"
