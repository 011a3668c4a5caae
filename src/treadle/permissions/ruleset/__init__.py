"""Permission rules: how they are written, what they match, the files that hold them."""
