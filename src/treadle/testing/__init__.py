"""Fakes, fault injection and conformance suites, shipped for programs that use the engine.

    clock         a clock without waiting            stores      a store in memory
    tools         tools that record and wait         chaos       a model that fails
    observers     one that records, one that fails   provider    a provider server on loopback
    faulty_files  a file system that fails           conformance suites for the contracts
    http_behaviors  what HTTP servers and proxies do, played on loopback

The model that follows a script is treadle.models.Scripted.
"""
