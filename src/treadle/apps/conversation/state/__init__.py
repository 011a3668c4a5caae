"""What is on the screen, as values: blocks, and how events change them."""
