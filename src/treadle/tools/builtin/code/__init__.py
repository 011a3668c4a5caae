"""Tools that ask the language servers: `find_symbol` finds, `rename_symbol` changes."""
