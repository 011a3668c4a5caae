"""What a command line does: from its text to the commands, files and programs in it.

Not a shell and not a judge: nothing is run and nothing is allowed here. The judge stands above;
tree-sitter-bash, loaded at the first command, below. What is not understood becomes a doubt.
"""

from treadle.policy.shell.facts import Assignment, ParsedCommand, SimpleCommand, Redirect, Word
from treadle.policy.shell.tree import parse_command

__all__ = ["Assignment", "ParsedCommand", "SimpleCommand", "Redirect", "Word", "parse_command"]
