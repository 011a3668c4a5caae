"""Conformance suites: one per contract, for any implementation, all of one shape.

    await check_model(make)          make() returns a new implementation, or an awaitable of one
    await check_store(open_store)    open_store(session_id) opens a session, also again

A suite is an async function: it runs under pytest, unittest or in a plain script, without a plugin.
It raises an AssertionError that names the promise: "store: close writes what was not flushed".
Further arguments, by name, say what the suite cannot know: arguments of a tool, a request that
fails. docs/extending.md has an example of each contract, with its check.
"""
