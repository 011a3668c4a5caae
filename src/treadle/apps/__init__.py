"""The hosts: each puts an agent together and shows it to someone.

They stand above everything else and do not know each other; what they share is wiring and settings.
"""
