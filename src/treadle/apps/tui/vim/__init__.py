"""The vim keys of the prompt: text in, text out, no widget."""
