"""What a command line does: from its text to the commands in it, and their effects.

    syntax/parser.py       parse_command(text): every simple command, with those that it runs
    analysis/programs.py   the effects of each, which the parser adds
    ast.py                 the values

Runs nothing and decides nothing. What it does not understand becomes a doubt. Used by permissions/,
hooks/ and tools/; uses tree-sitter-bash, which is loaded at the first command.
"""
