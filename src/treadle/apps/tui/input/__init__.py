"""What the user types and attaches: keys, completion, prompt history, clipboard."""
