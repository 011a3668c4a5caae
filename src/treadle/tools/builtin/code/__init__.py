"""Tools that ask the language servers: `code` finds, `rename_symbol` changes."""
