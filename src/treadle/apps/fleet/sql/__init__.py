"""The SQL database of a fleet: tables, rows, and its connections to SQLite and PostgreSQL."""
