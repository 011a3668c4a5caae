"""Whether the user's desktop asks for less motion: for `reduced_motion = "auto"`.

GNOME and macOS say so; elsewhere there is no answer, and motion stays. Used by screen.py, in the
background.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from treadle.apps.conversation import helper_programs

TIMEOUT_SECONDS = 2.0
_VARIABLES = ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XDG_CURRENT_DESKTOP")
# A program with its arguments, and its output if motion is to be reduced.
_QUESTIONS = (
    (("gsettings", "get", "org.gnome.desktop.interface", "enable-animations"), b"false"),
    (("defaults", "read", "com.apple.universalaccess", "reduceMotion"), b"1"),
)


async def wants_reduced_motion(folder: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Ask the desktop of this machine; over ssh it is not the user's."""
    if environ.get("SSH_CONNECTION"):
        return False
    for (name, *arguments), expected in _QUESTIONS:
        program = helper_programs.find_program(name, folder, environ)
        if program is not None:
            _, output, _ = await helper_programs.run_program(
                program, *arguments, variables=_VARIABLES, timeout=TIMEOUT_SECONDS
            )
            if output.strip() == expected:
                return True
    return False
