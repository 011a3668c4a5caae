"""OpenAI Chat Completions and compatible servers: the model, its encoding and its decoding."""
