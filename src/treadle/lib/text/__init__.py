"""Texts: cut, cleaned, searched, with secrets removed."""
