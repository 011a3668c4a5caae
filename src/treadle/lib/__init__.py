"""Plain tools below the contracts: no word of agents, and nothing of the project above them."""
