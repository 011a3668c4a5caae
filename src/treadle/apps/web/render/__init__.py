"""Values to HTML. Text of a model, a tool or a file is escaped here and never becomes HTML."""
