"""What known programs do with their arguments: which files they read, write and run."""
