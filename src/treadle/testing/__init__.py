"""Fakes, faults and conformance suites, shipped with the engine for whoever builds on it.

    clock       a clock that stands still          stores       a store in memory
    tools       tools that record and wait         chaos        models that break
    observers   a witness, and a broken observer   provider     a provider server on loopback
    conformance what every implementation of a contract has to pass

The model that follows a script is treadle.models.Scripted.
"""
