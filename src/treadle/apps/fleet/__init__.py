"""Many runs of the coding agent on one or more machines, none lost.

A task (task.py) becomes a run (run_record.py) in a database (database.py). Workers (worker.py) take
runs from the queue and drive them; any worker continues where another one died. `Fleet` (fleet.py)
is the whole of it for a program. A host: nothing below imports it.
"""
