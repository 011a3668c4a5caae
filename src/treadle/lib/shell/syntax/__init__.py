"""Parses a command line: tokens, words, simple commands, where `cd` leads."""
