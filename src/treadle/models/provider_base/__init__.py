"""What the providers over HTTP share: the model, request encoding, limits, error mapping."""
