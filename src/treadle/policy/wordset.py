"""Sets of names written as a line of words, so that a table reads as a table."""


def word_set(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())
