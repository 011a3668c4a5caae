"""What an agent may do: permission rules, command analysis, modes, trust, hooks, budgets.

Only the user can add permissions; everything else here removes some. Uses core contracts only.
"""
