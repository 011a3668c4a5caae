"""What commands print and ask, and what they share: exit codes, progress, servers, rules."""
