"""The eleven contracts: every feature enters the engine through one of them. Read them as a manual.

model      answers a request             source     provides tools
tool       one thing an agent can do     policy     allows, denies or asks about a call
hook       may block, change or add      mutator    may rewrite the view of the history
gate       may stop the next model call  store      keeps the log of a session
observer   receives events and items     workspace  files and processes
task_manager  keeps calls that continue in the background

`wrapped` is not a contract: it has the base classes of wrappers (models, tools, sources).
"""
