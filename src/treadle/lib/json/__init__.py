"""Python types as JSON: their schemas, their values, and what does not fit, in plain words."""
