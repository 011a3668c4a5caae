"""What an agent may do: rules, what a command line does, modes, trust, budgets.

Everything here narrows; only the user widens. Above: the wiring of an agent. Below: the contracts.
"""
