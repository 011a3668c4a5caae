"""What the model sees: the system prompt, memory files, reminders, compaction."""
