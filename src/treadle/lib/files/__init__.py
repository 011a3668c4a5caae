"""Files and paths: what they are, where private ones are kept, which ones are protected."""
