"""The one loop. Read driver.py first: it is the page; the other files are its details."""
