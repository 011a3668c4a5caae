"""The calls of a reply: prepared, approved, run and finished, as one round."""
