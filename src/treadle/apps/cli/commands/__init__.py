"""One module for each subcommand, imported when it is called."""
