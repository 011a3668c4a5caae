"""The parts of an argument that a program may take for a file: `--file=x`, `-fx`, `HEAD:x`, `@x`.

Knows no program. Used by the evaluators of commands and paths.
"""

_MAX_MARKS = 8


def list_values(text: str) -> tuple[str, ...]:
    """The parts of an argument that may be values: all of it, and after `-x`, `=`, `@`, `:`."""
    joined = text[2:] if text[:1] == "-" and text[1:2] != "-" else ""
    values = [text, joined]
    for mark in "=@:":
        rest = text
        for _ in range(_MAX_MARKS):  # `:0:x` and `-L:name:x` have two
            _, found, rest = rest.partition(mark)
            if not found:
                break
            values.append(rest)
    return tuple(dict.fromkeys(values))
