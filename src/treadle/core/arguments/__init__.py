"""Arguments of tool calls as models write them: repaired, and fitted to their schema."""
