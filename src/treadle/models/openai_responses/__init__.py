"""The OpenAI Responses API: the model, its encoding and its decoding."""
