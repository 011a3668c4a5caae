"""What a command line does: from its text to the commands, files and programs in it.

Not a shell and not a judge: nothing is run and nothing is allowed here. The judge stands above;
tree-sitter-bash, loaded at the first command, below. What is not understood becomes a doubt.
"""

from treadle.policy.shell.ast import Assignment, ParsedCommand, Redirect, SimpleCommand, Word
from treadle.policy.shell.syntax.parser import parse_command

__all__ = ["Assignment", "ParsedCommand", "SimpleCommand", "Redirect", "Word", "parse_command"]
