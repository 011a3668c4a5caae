import re


def slugify(title):
    """Turn a title into lower-case words joined by dashes."""
    words = re.findall(r"[A-Za-z0-9]+", title)
    return "-".join(words)
