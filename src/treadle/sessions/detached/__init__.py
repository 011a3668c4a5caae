"""Sessions that no window has: suspended, in the background, on another machine."""
