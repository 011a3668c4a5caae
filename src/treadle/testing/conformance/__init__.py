"""What every implementation of a contract has to pass: one suite a contract, free of a test runner.

Each suite is an async function that raises AssertionError with the broken promise in words, so
that it runs under pytest, unittest or a plain script.
"""
