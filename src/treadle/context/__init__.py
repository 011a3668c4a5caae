"""What it sees: the prompt, the project's memory, and how a long history is made to fit."""
