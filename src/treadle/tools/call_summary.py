"""A call of a tool on one line, for people. Not the request for an approval, which shows all of it.

Used by the tools of all kinds and by the hosts.
"""

from treadle.core.transcript.content import Arguments
from treadle.lib.text.text import shorten_middle

SUMMARY_KEYS = ("command", "path", "file_path", "pattern", "url", "query", "question")
SUMMARY_CHARS = 80
VALUE_CHARS = 60  # of one argument of several


def summarize_call(name: str, arguments: Arguments) -> str:
    """Such as `[bash: ls -la]`: the most informative argument, on one line."""
    key = next(filter(arguments.__contains__, SUMMARY_KEYS), None)
    value = arguments.get(key) if key is not None else next(iter(arguments.values()), None)
    if value is None:
        return f"[{name}]"
    text = " ".join(str(value).split())
    return f"[{name}: {text[:SUMMARY_CHARS]}{'…' if len(text) > SUMMARY_CHARS else ''}]"


def describe_call(name: str, arguments: Arguments) -> str:
    """Such as `[wire: amount=1, to=Ada]`: every argument, a long one shortened in the middle. The
    user decides by it, and does not know which of them matters."""
    if len(arguments) < 2:
        return summarize_call(name, arguments)
    line = ", ".join([f"{key}={value}" for key, value in arguments.items()])
    if len(line) > VALUE_CHARS or line != " ".join(line.split()):
        shown = [(key, shorten_middle(str(value), VALUE_CHARS)) for key, value in arguments.items()]
        line = ", ".join([f"{key}={value}" for key, value in shown])
    return f"[{name}: {line}]"
