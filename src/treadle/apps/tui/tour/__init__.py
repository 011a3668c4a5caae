"""The tour: the real terminal UI in a temporary folder, on a scripted model, with a line that says
what to do next."""
