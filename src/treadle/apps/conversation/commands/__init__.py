"""Every slash command once: table.py lists them, hosts only show their answers (answers.py)."""
