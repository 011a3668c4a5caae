"""Settings with their origin: read, merged, changed, written."""
