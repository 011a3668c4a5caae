"""The machine: values, contracts and the one loop. It imports nothing else of the project."""
