"""What HTTP clients share: trust in certificates, decoding of bodies."""
