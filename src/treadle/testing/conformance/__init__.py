"""Conformance suites: one per contract, for any implementation.

A check is an async function that raises AssertionError with the broken promise, so that it runs
under pytest, unittest or in a plain script. The suite of the Store is a class for pytest.
"""
