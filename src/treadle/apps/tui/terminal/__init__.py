"""What the program tells the terminal around it, and what the terminal tells the program."""
