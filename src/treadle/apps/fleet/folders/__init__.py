"""Where runs work: their folders, what they are filled from, snapshots, containers."""
