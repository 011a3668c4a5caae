"""What the person types and attaches: keys, completion, prompt history, clipboard."""
