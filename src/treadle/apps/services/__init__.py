"""What the hosts share beyond building an agent: sessions, trust, attachments, costs, undo."""
