def parse(text):
    """Read lines of the form `name = value`; blank lines and # comments are left out."""
    settings = {}
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, value = line.split("=")
        settings[name.strip()] = value.strip()
    return settings
