"""What a command line does: from its text to the commands, files and programs in it.

Runs nothing and decides nothing. What it does not understand becomes a doubt. Used by evaluation/
and hooks/; uses tree-sitter-bash, which is loaded at the first command.
"""

from treadle.lib.shell.ast import Assignment, ParsedCommand, Redirect, SimpleCommand, Word
from treadle.lib.shell.syntax.parser import parse_command

__all__ = ["Assignment", "ParsedCommand", "SimpleCommand", "Redirect", "Word", "parse_command"]
