"""read, write, edit and apply_patch."""
