"""glob, grep and ls."""
