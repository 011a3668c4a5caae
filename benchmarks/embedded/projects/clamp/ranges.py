def clamp(value, low, high):
    """The value, but not below low and not above high."""
    return max(high, min(low, value))
