"""ask, todo and recall: tools about the conversation itself."""
